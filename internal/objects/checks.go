package objects

import (
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// CheckRecord returns an error if the name, labels and spec of a record from the broker disagree.
// Otherwise one member could publish for another, or for another service.
func CheckRecord(r *v1alpha1.ExportRecord) error {
	service, ok := ServiceOf(r)
	if !ok {
		return fmt.Errorf("record %s has no service labels", r.Name)
	}
	if r.Spec.ServiceName != service.Name || r.Spec.ServiceNamespace != service.Namespace {
		return fmt.Errorf("record %s is labelled for %s but describes %s/%s", r.Name, service, r.Spec.ServiceNamespace, r.Spec.ServiceName)
	}
	if source := r.Labels[mcsv1beta1.LabelSourceCluster]; source != string(r.Spec.ClusterID) {
		return fmt.Errorf("record %s is labelled for cluster %q but its spec says %q", r.Name, source, r.Spec.ClusterID)
	}
	if want := RecordName(service, string(r.Spec.ClusterID)); r.Name != want {
		return fmt.Errorf("record %s should be named %s", r.Name, want)
	}
	return nil
}

// CheckSlice returns an error if the name and labels of a slice from the broker disagree.
func CheckSlice(s *discoveryv1.EndpointSlice) error {
	service, ok := ServiceOf(s)
	if !ok {
		return fmt.Errorf("slice %s has no service labels", s.Name)
	}
	source := s.Labels[mcsv1beta1.LabelSourceCluster]
	if source == "" || !strings.HasPrefix(s.Name, RecordName(service, source)+".") || len(s.Name) > maxNameLength {
		return fmt.Errorf("slice %s is labelled for %s of cluster %q, which does not match its name", s.Name, service, source)
	}
	return nil
}
