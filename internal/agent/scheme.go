package agent

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
)

// newScheme returns a scheme with every kind that the agent reads or writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		clientgoscheme.AddToScheme, mcsv1beta1.Install, v1alpha1.AddToScheme, aboutv1beta1.AddToScheme, claimsv1.AddToScheme,
	)
	return scheme, builder.AddToScheme(scheme)
}

// newMapper returns a mapper of the same kinds.
func newMapper() meta.RESTMapper {
	mapper := kinds.NewMapper()
	mapper.Add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Service", "Secret", "ServiceAccount", "ConfigMap")
	mapper.Add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node", "Namespace")
	mapper.Add(discoveryv1.SchemeGroupVersion, meta.RESTScopeNamespace, "EndpointSlice")
	mapper.Add(coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Lease")
	mapper.Add(networkingv1.SchemeGroupVersion, meta.RESTScopeRoot, "ServiceCIDR")
	mapper.Add(mcsv1beta1.SchemeGroupVersion, meta.RESTScopeNamespace, "ServiceExport", "ServiceImport")
	mapper.Add(v1alpha1.GroupVersion, meta.RESTScopeNamespace, "ClusterSet", "Cluster", "ExportRecord")
	mapper.Add(aboutv1beta1.GroupVersion, meta.RESTScopeRoot, "ClusterProperty")
	mapper.Add(claimsv1.GroupVersion, meta.RESTScopeRoot, "ClusterClaim")
	mapper.Add(kindOfCRDs.GroupVersion(), meta.RESTScopeRoot, kindOfCRDs.Kind)
	return mapper
}
