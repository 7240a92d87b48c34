package imports

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Derived is what should become of the Service that makes an import reachable in this cluster.
type Derived struct {
	// Want is the Service as it should be, nil when there should be none. It lacks only the owner reference. Of a Service that exists it is a
	// changed copy, so that the address stays.
	Want *corev1.Service
	// Replace tells that the existing one cannot be changed into Want: the first family of a Service is fixed.
	Replace bool
}

// derive decides about the derived Service. Once made it lives as long as its ServiceImport, also while the service is headless or has
// no family in common with this cluster: it must have the same address when that is over.
func derive(in Input, spec *mcsv1beta1.ServiceImportSpec, mode merge.Mode, families []corev1.IPFamily) Derived {
	if !in.DataPlane.DerivesService {
		return Derived{}
	}
	existing := in.Derived
	ours := isDerived(existing, in.Service)
	if mode != merge.ModeClusterSetIP || len(families) == 0 || len(spec.Ports) == 0 {
		if ours {
			return Derived{Want: existing}
		}
		return Derived{}
	}
	if existing != nil && !ours {
		return Derived{} // somebody else's: the ServiceImport says so
	}
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: in.Service.Namespace, Name: objects.DerivedServiceName(in.Service.Name)}}
	replace := false
	if existing != nil {
		replace = len(existing.Spec.IPFamilies) > 0 && !slices.Contains(families, existing.Spec.IPFamilies[0])
		if !replace {
			want = existing.DeepCopy()
		}
	}
	want.Labels = maps.Clone(want.Labels)
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, derivedLabels(in.Service))
	want.Spec.Type = corev1.ServiceTypeClusterIP
	want.Spec.Selector = nil
	want.Spec.Ports = derivedPorts(spec.Ports)
	setFamilies(&want.Spec, families)
	setPolicies(&want.Spec, spec, in.OldDistribution)
	return Derived{Want: want, Replace: replace}
}

func derivedLabels(service types.NamespacedName) map[string]string {
	return map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark, mcsv1beta1.LabelServiceName: service.Name}
}

// isDerived tells a derived Service of ours from one that only has its name.
func isDerived(svc *corev1.Service, service types.NamespacedName) bool {
	if svc == nil {
		return false
	}
	of, ok := objects.DerivedFrom(svc)
	return ok && of == service
}

// derivedPorts write defaults out, so that what is read back compares equal. Slices name the pods' own ports; the target port of a
// Service without a selector is only for show.
func derivedPorts(ports []mcsv1beta1.ServicePort) []corev1.ServicePort {
	out := make([]corev1.ServicePort, len(ports))
	for i, p := range ports {
		out[i] = corev1.ServicePort{
			Name: p.Name, Protocol: protocol(p.Protocol), AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port),
		}
	}
	return out
}

// setFamilies keeps the first family of an existing Service first, because it cannot be changed.
func setFamilies(spec *corev1.ServiceSpec, families []corev1.IPFamily) {
	wanted := slices.Clone(families)
	if len(spec.IPFamilies) > 0 && wanted[0] != spec.IPFamilies[0] {
		slices.Reverse(wanted)
	}
	spec.IPFamilies = wanted
	spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(wanted) > 1 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	if len(spec.ClusterIPs) > len(wanted) {
		spec.ClusterIPs = spec.ClusterIPs[:len(wanted)] // the second address goes with its family
	}
}

// setPolicies takes over what this API server knows. A value from the future, or from a newer cluster, must not take the service away.
func setPolicies(spec *corev1.ServiceSpec, from *mcsv1beta1.ServiceImportSpec, oldDistribution bool) {
	spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if from.SessionAffinity == corev1.ServiceAffinityClientIP {
		timeout := corev1.DefaultClientIPServiceAffinitySeconds
		if c := from.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			timeout = min(max(*c.ClientIP.TimeoutSeconds, 1), maxAffinitySeconds)
		}
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	if ptr.Deref(from.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	spec.TrafficDistribution = nil
	switch d := ptr.Deref(from.TrafficDistribution, ""); d {
	case corev1.ServiceTrafficDistributionPreferClose:
		spec.TrafficDistribution = ptr.To(d)
	case corev1.ServiceTrafficDistributionPreferSameZone:
		if oldDistribution {
			d = corev1.ServiceTrafficDistributionPreferClose // its name before Kubernetes 1.34
		}
		spec.TrafficDistribution = ptr.To(d)
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if !oldDistribution {
			spec.TrafficDistribution = ptr.To(d)
		}
	}
}

// maxAffinitySeconds is what the API server accepts: a day.
const maxAffinitySeconds = 86400

func sameService(a, b *corev1.Service) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
