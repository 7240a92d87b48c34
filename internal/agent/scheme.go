package agent

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// newScheme returns a scheme with every kind that the agent reads or writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcsv1beta1.Install, v1alpha1.AddToScheme, aboutv1beta1.AddToScheme, claimsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// newMapper returns a mapper of the same kinds that does not use discovery: an agent must be able
// to start while its broker is unreachable, and discovery of a whole API server is a few hundred
// kilobytes for a dozen kinds.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(gv schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			plural, singular := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
			mapper.AddSpecific(gv.WithKind(kind), plural, singular, scope)
			// A client that lists looks up the kind of the list.
			mapper.AddSpecific(gv.WithKind(kind+"List"), plural, singular, scope)
		}
	}
	add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Service", "Secret", "ServiceAccount", "ConfigMap")
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node", "Namespace")
	add(discoveryv1.SchemeGroupVersion, meta.RESTScopeNamespace, "EndpointSlice")
	add(coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Lease")
	add(networkingv1.SchemeGroupVersion, meta.RESTScopeRoot, "ServiceCIDR")
	add(mcsv1beta1.SchemeGroupVersion, meta.RESTScopeNamespace, "ServiceExport", "ServiceImport")
	add(v1alpha1.GroupVersion, meta.RESTScopeNamespace, "ClusterSet", "Cluster", "ExportRecord")
	add(aboutv1beta1.GroupVersion, meta.RESTScopeRoot, "ClusterProperty")
	add(claimsv1.GroupVersion, meta.RESTScopeRoot, "ClusterClaim")
	add(kindOfCRDs.GroupVersion(), meta.RESTScopeRoot, kindOfCRDs.Kind)
	return mapper
}
