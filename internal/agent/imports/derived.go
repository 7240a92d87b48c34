package imports

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Derived is the plan for the Service that makes an import reachable in this cluster.
type Derived struct {
	// Want is the Service as it should be, nil if there should be none. If the Service exists, Want
	// is a changed copy of it and so keeps its ClusterIPs.
	Want *corev1.Service
	// Replace reports whether the existing Service must be deleted first: the first family of a
	// Service is immutable, and this cluster does not have it any more.
	Replace bool
}

// derive decides about the derived Service. It lives as long as the service is imported, even while
// the service is headless or has no family in common with this cluster, so that its ClusterIPs are
// the same afterwards.
//
// It has no owner: the garbage collector would delete it with a ServiceImport that a user deletes,
// and the new ServiceImport would get another ClusterIP.
func derive(in Input, merged merge.Result, families []corev1.IPFamily) Derived {
	if !in.DataPlane.DerivesService {
		return Derived{}
	}
	existing, spec := in.Derived, &merged.Spec
	managed := isDerived(existing, in.Service)
	if merged.Mode != merge.ModeClusterSetIP || len(families) == 0 || len(spec.Ports) == 0 {
		if managed {
			return Derived{Want: disowned(existing)}
		}
		return Derived{}
	}
	if existing != nil && !managed {
		return Derived{} // the Ready condition of the ServiceImport names it
	}
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: in.Service.Namespace, Name: objects.DerivedServiceName(in.Service.Name)}}
	replace := false
	if existing != nil {
		replace = len(existing.Spec.IPFamilies) > 0 && !slices.Contains(in.Families, existing.Spec.IPFamilies[0])
		if !replace {
			want = disowned(existing)
		}
	}
	want.Labels, want.Annotations = derivedLabels(in.Service), nil
	setExported(want, merged, notOnServices)
	if existing != nil {
		keepForeign(want, existing)
	}
	want.Spec.Type = corev1.ServiceTypeClusterIP
	want.Spec.Selector = nil
	want.Spec.Ports = derivedPorts(spec.Ports)
	setFamilies(&want.Spec, families, in.Families)
	setPolicies(&want.Spec, spec, in.OldDistribution)
	return Derived{Want: want, Replace: replace}
}

// disowned returns a copy of a Service without the owner that agents before this version set.
func disowned(svc *corev1.Service) *corev1.Service {
	out := svc.DeepCopy()
	out.OwnerReferences = slices.DeleteFunc(out.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == mcsv1beta1.ServiceImportKindName
	})
	return out
}

func derivedLabels(service types.NamespacedName) map[string]string {
	return map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark, mcsv1beta1.LabelServiceName: service.Name}
}

// isDerived reports whether svc is the derived Service of a service, and not one of another
// controller or user that has its name.
func isDerived(svc *corev1.Service, service types.NamespacedName) bool {
	if svc == nil {
		return false
	}
	of, ok := objects.DerivedFrom(svc)
	return ok && of == service
}

// derivedPorts returns the ports with all defaults set, so that they equal what the API server
// returns. The target port of a Service without a selector has no effect: slices name the pods'
// ports.
func derivedPorts(ports []mcsv1beta1.ServicePort) []corev1.ServicePort {
	out := make([]corev1.ServicePort, len(ports))
	for i, p := range ports {
		out[i] = corev1.ServicePort{
			Name: p.Name, Protocol: protocol(p.Protocol), AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port),
		}
	}
	return out
}

// setFamilies adds the families of the service to those that the Service has. It takes none away
// that this cluster has: the API server would release the ClusterIP, and give out another one when
// the family returns, for example because the record that has it was lost for a moment. Clients do
// not learn the ClusterIP meanwhile, since the ServiceImport lacks it.
func setFamilies(spec *corev1.ServiceSpec, families, ofCluster []corev1.IPFamily) {
	wanted := slices.DeleteFunc(slices.Clone(spec.IPFamilies), func(f corev1.IPFamily) bool { return !slices.Contains(ofCluster, f) })
	for _, family := range families {
		if !slices.Contains(wanted, family) {
			wanted = append(wanted, family)
		}
	}
	spec.IPFamilies = wanted
	spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(wanted) > 1 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	if len(spec.ClusterIPs) > len(wanted) {
		spec.ClusterIPs = spec.ClusterIPs[:len(wanted)] // the API server releases the second with its family
	}
}

// setPolicies sets the policies that this API server knows. It leaves out values of a newer
// version: they would get the Service refused.
func setPolicies(spec *corev1.ServiceSpec, from *mcsv1beta1.ServiceImportSpec, oldDistribution bool) {
	spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if from.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = from.SessionAffinityConfig.DeepCopy() // the merge made it valid and complete
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

func sameService(a, b *corev1.Service) bool {
	return apply.SameMetadata(a, b) && apply.SameOwners(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}
