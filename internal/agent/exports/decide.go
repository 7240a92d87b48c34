// Package exports publishes this cluster's exported services: ServiceExport, Service and
// EndpointSlices become an ExportRecord and EndpointSlices on the broker. The ServiceExport's
// conditions report the result.
//
// decide.go and slices.go decide without I/O; reconciler.go reads, calls them, and writes the
// difference.
package exports

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Settings apply to all exports of this member.
type Settings struct {
	ClusterID string
	// BrokerNamespace is the namespace of the records.
	BrokerNamespace string
	// AdmittedAt is when the broker's admin admitted this cluster. No export is older.
	AdmittedAt metav1.Time
	// AllowedNamespaces are those of the member's Cluster object; see objects.NamespaceAllowed.
	AllowedNamespaces []string
	// UseClusterSetIP is the default for exports without the annotation.
	UseClusterSetIP bool
	// NamedSlices reports whether the broker accepts slices with objects.UnusedServiceName.
	NamedSlices bool
}

// Input is all that was read to decide about one service.
type Input struct {
	Settings
	Export  *mcsv1beta1.ServiceExport // nil if the service is not exported
	Service *corev1.Service           // nil if there is none
	// Slices are the Service's own EndpointSlices.
	Slices []*discoveryv1.EndpointSlice
	// RegionOf returns the region of a node, "" if it is unknown.
	RegionOf func(node string) string
	// OverLimit is why this cluster may not publish one more service, empty if it may.
	OverLimit string
	// Records are all clusters' records of this service on the broker, including this cluster's.
	// Those of demoted clusters are made the youngest. Undemoted are the same with their own ages.
	Records, Undemoted []*v1alpha1.ExportRecord
	// Addressing is what the clusterset IPs of the record are decided from.
	Addressing
}

// Plan is what the broker should hold of this cluster, and the conditions of the ServiceExport.
type Plan struct {
	// Record is nil when nothing of the service may be on the broker.
	Record *v1alpha1.ExportRecord
	Slices []*discoveryv1.EndpointSlice
	// Valid and Conflict are conditions of the ServiceExport; Ready depends on the result of
	// writing.
	Valid    metav1.Condition
	Conflict *metav1.Condition
	// heldUntil is until when the withdrawal of the service is held; zero if it is not.
	heldUntil time.Time
	// leftOut is why this cluster takes no part in the service although it may export it, nil if it
	// takes part.
	leftOut *merge.Conflict
	// Claims is what was decided about the clusterset IPs of the record.
	Claims
}

// Decide merges the records, this cluster's new one included, and returns what should be.
func Decide(in Input) Plan {
	if in.Export == nil || in.Export.DeletionTimestamp != nil {
		return Plan{}
	}
	valid := validity(in)
	if valid.Status != metav1.ConditionTrue {
		return Plan{Valid: valid}
	}
	record := recordOf(in)
	in.adoptMode(record)
	records := withOwn(in.Records, record)
	merged := merge.Merge(records)
	claims := in.claim(merged, records)
	record.Spec.ClusterSetIPs = claims.IPs
	objects.SetClaimLabels(record)
	conflict := conflictCondition(merged)
	plan := Plan{Record: record, Valid: valid, Conflict: &conflict, Claims: claims}
	if reason, out := merged.LeftOut[in.ClusterID]; out {
		i := slices.IndexFunc(merged.Conflicts, func(c merge.Conflict) bool { return c.Reason == reason })
		plan.leftOut = &merged.Conflicts[i]
		if !in.mayStillBeUsed(record) {
			return plan
		}
	}
	plan.Slices = Slices(in, merged.Mode)
	return plan
}

// mayStillBeUsed reports whether importers may use this cluster although it takes no part in the
// service without the demoted clusters: they follow a demotion only when the clusters that then
// decide are ready.
func (in Input) mayStillBeUsed(record *v1alpha1.ExportRecord) bool {
	return len(in.Undemoted) > 0 && slices.Contains(merge.Merge(withOwn(in.Undemoted, record)).Clusters, in.ClusterID)
}

func validity(in Input) metav1.Condition {
	namespace, name := in.Export.Namespace, in.Export.Name
	switch {
	case !objects.NamespaceAllowed(in.AllowedNamespaces, namespace):
		return invalid(v1alpha1.ServiceExportReasonNamespaceNotAllowed, fmt.Sprintf(
			"cluster %s may not export from namespace %s: the broker's admin must allow it (seamark broker invite %s --allow-namespaces …)",
			in.ClusterID, namespace, in.ClusterID))
	case in.OverLimit != "":
		return invalid(v1alpha1.ServiceExportReasonLimitExceeded, in.OverLimit)
	case in.Service == nil:
		return invalid(mcsv1beta1.ServiceExportReasonNoService, fmt.Sprintf(
			"there is no Service %s in namespace %s: create it, and it is exported", name, namespace))
	case in.Service.Spec.Type == corev1.ServiceTypeExternalName:
		return invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"a Service of type ExternalName cannot be exported: create one in each cluster instead")
	}
	message := "the Service can be exported"
	switch in.Export.Annotations[v1alpha1.AnnotationPrefer] {
	case "", v1alpha1.PreferRegion, v1alpha1.PreferCluster:
	default:
		message += fmt.Sprintf("; its annotation %s has no effect: the value must be %s or %s",
			v1alpha1.AnnotationPrefer, v1alpha1.PreferRegion, v1alpha1.PreferCluster)
	}
	return condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, message)
}

func invalid(reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	return condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, reason, message)
}

// conflictCondition returns the same condition for every constituent export, whichever agent writes
// it.
func conflictCondition(merged merge.Result) metav1.Condition {
	status, reason, message := merged.Condition()
	return metav1.Condition{Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: status, Reason: reason, Message: message}
}

func condition(
	t mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason, message string,
) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: status, Reason: string(reason), Message: message}
}

// withOwn returns the records with this cluster's replaced by the one it is about to publish.
func withOwn(records []*v1alpha1.ExportRecord, own *v1alpha1.ExportRecord) []*v1alpha1.ExportRecord {
	others := slices.DeleteFunc(slices.Clone(records), func(r *v1alpha1.ExportRecord) bool { return r.Spec.ClusterID == own.Spec.ClusterID })
	return append(others, own)
}

func recordOf(in Input) *v1alpha1.ExportRecord {
	service := types.NamespacedName{Namespace: in.Export.Namespace, Name: in.Export.Name}
	svc := &in.Service.Spec
	requested := requestedClusterSetIP(in.Export, in.UseClusterSetIP)
	record := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.BrokerNamespace,
			Name:      objects.RecordName(service, in.ClusterID),
			Labels:    objects.Labels(service, in.ClusterID),
		},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName:      service.Name,
			ServiceNamespace: service.Namespace,
			ClusterID:        v1alpha1.ClusterID(in.ClusterID),
			// Whole seconds, as the API server keeps them: the record must equal what is read back.
			ExportedAt:            exportedAt(in),
			Type:                  mcsv1beta1.ClusterSetIP,
			Ports:                 make([]v1alpha1.ServicePort, 0, len(svc.Ports)),
			IPFamilies:            svc.IPFamilies,
			SessionAffinity:       svc.SessionAffinity,
			SessionAffinityConfig: svc.SessionAffinityConfig,
			InternalTrafficPolicy: svc.InternalTrafficPolicy,
			TrafficDistribution:   svc.TrafficDistribution,
			ExportedLabels:        in.Export.Spec.ExportedLabels,
			ExportedAnnotations:   in.Export.Spec.ExportedAnnotations,
			UseClusterSetIP:       requested,
			RequestedClusterSetIP: requested,
			MergeVersion:          merge.Version,
			Prefer:                preference(in.Export),
		},
	}
	if IsHeadless(in.Service) {
		record.Spec.Type = mcsv1beta1.Headless
	}
	for _, p := range svc.Ports {
		record.Spec.Ports = append(record.Spec.Ports, v1alpha1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port,
		})
	}
	if old := recordFrom(in.Records, in.ClusterID); old != nil {
		// An update keeps the age on the broker, by which claims are ordered.
		record.CreationTimestamp, record.Spec.ClusterSetIPs = old.CreationTimestamp, old.Spec.ClusterSetIPs
	}
	return record
}

// exportedAt returns the age of the export, which decides conflicts. The record of a younger export
// keeps its age: the broker lets no member make itself older.
func exportedAt(in Input) metav1.Time {
	at := in.Export.CreationTimestamp
	if at.Before(&in.AdmittedAt) {
		at = in.AdmittedAt
	}
	if old := recordFrom(in.Records, in.ClusterID); old != nil && at.Before(&old.Spec.ExportedAt) {
		at = old.Spec.ExportedAt
	}
	return metav1.NewTime(at.UTC())
}

// preference returns the export's preference about the path of traffic. A value that is too long
// for a record is dropped: the broker would refuse the record, and no version has such a value.
func preference(export *mcsv1beta1.ServiceExport) string {
	value := export.Annotations[v1alpha1.AnnotationPrefer]
	if utf8.RuneCountInString(value) > v1alpha1.MaxPreferLength {
		return ""
	}
	return value
}

// recordFrom returns the record of a cluster, or nil.
func recordFrom(records []*v1alpha1.ExportRecord, clusterID string) *v1alpha1.ExportRecord {
	for _, r := range records {
		if string(r.Spec.ClusterID) == clusterID {
			return r
		}
	}
	return nil
}

// IsHeadless reports whether a Service has no ClusterIP by choice.
func IsHeadless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// requestedClusterSetIP reports whether an export requests a clusterset IP: by its annotation, by
// the alias of that, or by default. A value that is neither true nor false is ignored.
func requestedClusterSetIP(export *mcsv1beta1.ServiceExport, byDefault bool) bool {
	for _, annotation := range []string{v1alpha1.AnnotationUseClusterSetIP, v1alpha1.AnnotationUseClusterSetIPAlias} {
		switch export.Annotations[annotation] {
		case "true":
			return true
		case "false":
			return false
		}
	}
	return byDefault
}
