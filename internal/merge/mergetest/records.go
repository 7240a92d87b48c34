// Package mergetest creates records for tests of the merge: by hand, and at random for property
// tests.
package mergetest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
)

// Epoch is when exports of age 0 were created.
var Epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// An Option changes a record.
type Option func(*v1alpha1.ExportRecordSpec)

// Record returns an export of a Service with the port http 80/TCP and IPv4, created that many
// seconds after the Epoch.
func Record(cluster string, after int, options ...Option) v1alpha1.ExportRecordSpec {
	spec := v1alpha1.ExportRecordSpec{
		ServiceName:           "web",
		ServiceNamespace:      "shop",
		ClusterID:             v1alpha1.ClusterID(cluster),
		ExportedAt:            metav1.NewTime(Epoch.Add(time.Duration(after) * time.Second)),
		Type:                  mcsv1beta1.ClusterSetIP,
		Ports:                 []v1alpha1.ServicePort{Port("http", corev1.ProtocolTCP, 80)},
		IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
		UseClusterSetIP:       true,
		RequestedClusterSetIP: true,
	}
	for _, o := range options {
		o(&spec)
	}
	return spec
}

// Port returns a port.
func Port(name string, protocol corev1.Protocol, number int32) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Protocol: protocol, Port: number}
}

// AppPort returns a port with an application protocol.
func AppPort(name string, number int32, app string) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, AppProtocol: &app}
}

// Ports replaces the ports.
func Ports(ports ...v1alpha1.ServicePort) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.Ports = ports }
}

// Headless makes the Service headless.
func Headless() Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.Type = mcsv1beta1.Headless }
}

// Families replaces the IP families.
func Families(families ...corev1.IPFamily) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.IPFamilies = families }
}

// Affinity sets the session affinity.
func Affinity(a corev1.ServiceAffinity) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.SessionAffinity = a }
}

// Sticky sets ClientIP affinity with a timeout.
func Sticky(seconds int32) Option {
	return func(s *v1alpha1.ExportRecordSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// InternalPolicy sets the internal traffic policy.
func InternalPolicy(p corev1.ServiceInternalTrafficPolicy) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.InternalTrafficPolicy = &p }
}

// Distribution sets the traffic distribution.
func Distribution(d string) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.TrafficDistribution = &d }
}

// Labels sets the exported labels, given as keys and values in turn.
func Labels(pairs ...string) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.ExportedLabels = toMap(pairs) }
}

// Annotations sets the exported annotations, given as keys and values in turn.
func Annotations(pairs ...string) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.ExportedAnnotations = toMap(pairs) }
}

// ClusterSetIP sets whether the export requested a clusterset IP when it was created, and whether
// it does now.
func ClusterSetIP(use, requested bool) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.UseClusterSetIP, s.RequestedClusterSetIP = use, requested }
}

// Prefer sets the preference about the path of traffic.
func Prefer(p string) Option {
	return func(s *v1alpha1.ExportRecordSpec) { s.Prefer = p }
}

func toMap(pairs []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// Merge merges the records of specs.
func Merge(specs []v1alpha1.ExportRecordSpec) merge.Result { return merge.Merge(Records(specs)) }

// Records returns records with these specs, which are shared.
func Records(specs []v1alpha1.ExportRecordSpec) []*v1alpha1.ExportRecord {
	records := make([]*v1alpha1.ExportRecord, len(specs))
	for i := range specs {
		records[i] = &v1alpha1.ExportRecord{Spec: specs[i]}
	}
	return records
}
