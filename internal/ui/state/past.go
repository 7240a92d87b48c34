package state

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

// FromEvent returns the entry for an Event of an agent. ok is false for Events before since.
func FromEvent(cluster string, e *corev1.Event, since time.Time) (entry Entry, ok bool) {
	at := lastSeen(e)
	if at.Before(since) {
		return Entry{}, false
	}
	entry = Entry{At: at, Source: Event, Severity: explain.Note, Cluster: cluster, Text: fmt.Sprintf("%s: %s: %s", cluster, e.Reason, e.Message)}
	if e.Type == corev1.EventTypeWarning {
		entry.Severity = explain.Warn
	}
	if about := e.InvolvedObject; about.Namespace != "" {
		name := about.Namespace + "/" + about.Name
		entry.Text = fmt.Sprintf("%s: %s %s: %s", cluster, e.Reason, name, e.Message)
		if about.Kind == "ServiceExport" || about.Kind == "ServiceImport" {
			entry.Service = name
		}
	}
	return entry, true
}

// lastSeen returns when an Event happened last. Which field has it depends on the API of its
// writer.
func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil && !e.Series.LastObservedTime.IsZero() {
		return e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

// FromExport returns entries for the conditions of an export that changed since a time.
func FromExport(cluster string, e *mcsv1beta1.ServiceExport, since time.Time) []Entry {
	good := map[string]metav1.ConditionStatus{
		string(mcsv1beta1.ServiceExportConditionValid):    metav1.ConditionTrue,
		string(mcsv1beta1.ServiceExportConditionReady):    metav1.ConditionTrue,
		string(mcsv1beta1.ServiceExportConditionConflict): metav1.ConditionFalse,
	}
	return fromConditions(cluster, e.Namespace+"/"+e.Name, "export", e.Status.Conditions, good, since)
}

// FromImport returns entries for the conditions of an import that changed since a time.
func FromImport(cluster string, si *mcsv1beta1.ServiceImport, since time.Time) []Entry {
	if !objects.IsManagedImport(si) {
		return nil
	}
	good := map[string]metav1.ConditionStatus{
		string(mcsv1beta1.ServiceImportConditionReady):            metav1.ConditionTrue,
		string(v1alpha1.ServiceImportConditionStaleEndpointsKept): metav1.ConditionFalse,
		string(v1alpha1.ServiceImportConditionAddressesRefused):   metav1.ConditionFalse,
		string(v1alpha1.ServiceImportConditionWithdrawalHeld):     metav1.ConditionFalse,
	}
	return fromConditions(cluster, si.Namespace+"/"+si.Name, "import", si.Status.Conditions, good, since)
}

// fromConditions returns an entry for each condition that changed since a time. good are the
// conditions that count, with the status that is no trouble.
func fromConditions(
	cluster, service, what string, conditions []metav1.Condition, good map[string]metav1.ConditionStatus, since time.Time,
) []Entry {
	var out []Entry
	for i := range conditions {
		c := &conditions[i]
		fine, counts := good[c.Type]
		if !counts || c.LastTransitionTime.Time.Before(since) {
			continue
		}
		entry := Entry{
			At: c.LastTransitionTime.Time, Source: Condition, Severity: explain.Warn, Service: service, Cluster: cluster,
			Text: fmt.Sprintf("%s: %s of %s has %s=%s (%s)", cluster, what, service, c.Type, c.Status, c.Reason),
		}
		if c.Status == fine {
			entry.Severity = explain.Good
		}
		out = append(out, entry)
	}
	return out
}
