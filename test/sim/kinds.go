package sim

import (
	"cmp"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// kind is what the modelled API server has to know about a Go type.
type kind struct {
	name string
	// notFound is the error of caches that lack an object.
	notFound error
	// All copies are shallow, because deep ones would be half of the simulator's work. No agent may
	// change what is behind the pointers and maps of an object that was read; see detector.

	// fill sets the items of a list to copies of objects. set replaces what dst points at by a copy
	// of src.
	fill func(list client.ObjectList, items []client.Object)
	set  func(dst, src client.Object)
	// keepStatus copies the status of src to dst; nil for kinds without a status subresource.
	keepStatus func(dst, src client.Object)
	// shallow returns a copy, withoutMeta one with empty metadata, for the comparison of the rest.
	shallow     func(client.Object) client.Object
	withoutMeta func(client.Object) client.Object
}

var (
	kinds = map[reflect.Type]*kind{} // by the type of a pointer to an object
	lists = map[reflect.Type]*kind{} // by the type of a pointer to a list
	// typesByKind are the types of pointers to objects.
	typesByKind = map[*kind]reflect.Type{}
	// ownedTypes are those that the agent gives an owner.
	ownedTypes = []reflect.Type{reflect.TypeFor[*discoveryv1.EndpointSlice](), reflect.TypeFor[*corev1.Service]()}
)

func kindOf(obj client.Object) *kind { return kinds[reflect.TypeOf(obj)] }

// register adds a kind. status returns the status of an object; nil if the kind has no status
// subresource.
func register[T, L, S any, P interface {
	*T
	client.Object
}](name string, items func(*L) *[]T, status func(*T) *S) {
	k := &kind{
		name: name, notFound: apierrors.NewNotFound(schema.GroupResource{Resource: name}, ""),
		fill: func(list client.ObjectList, objects []client.Object) {
			typed, ok := any(list).(*L)
			if !ok {
				panic(name)
			}
			out := make([]T, len(objects))
			for i, obj := range objects {
				out[i] = *obj.(P)
			}
			*items(typed) = out
		},
		set: func(dst, src client.Object) { *dst.(P) = *src.(P) },
		shallow: func(obj client.Object) client.Object {
			out := *obj.(P)
			return P(&out)
		},
	}
	k.withoutMeta = func(obj client.Object) client.Object {
		out := k.shallow(obj)
		out.SetName("")
		out.SetNamespace("")
		out.SetUID("")
		out.SetLabels(nil)
		out.SetAnnotations(nil)
		out.SetResourceVersion("")
		out.SetGeneration(0)
		out.SetOwnerReferences(nil)
		return out
	}
	if status != nil {
		k.keepStatus = func(dst, src client.Object) {
			*status((*T)(dst.(P))) = *status((*T)(src.(P)))
		}
	}
	kinds[reflect.TypeFor[P]()] = k
	typesByKind[k] = reflect.TypeFor[P]()
	lists[reflect.TypeFor[*L]()] = k
}

func init() {
	register("services", func(l *corev1.ServiceList) *[]corev1.Service { return &l.Items },
		func(o *corev1.Service) *corev1.ServiceStatus { return &o.Status })
	register("serviceexports", func(l *mcsv1beta1.ServiceExportList) *[]mcsv1beta1.ServiceExport { return &l.Items },
		func(o *mcsv1beta1.ServiceExport) *mcsv1beta1.ServiceExportStatus { return &o.Status })
	register("serviceimports", func(l *mcsv1beta1.ServiceImportList) *[]mcsv1beta1.ServiceImport { return &l.Items },
		func(o *mcsv1beta1.ServiceImport) *mcsv1beta1.ServiceImportStatus { return &o.Status })
	register("clusters", func(l *v1alpha1.ClusterList) *[]v1alpha1.Cluster { return &l.Items },
		func(o *v1alpha1.Cluster) *v1alpha1.ClusterStatus { return &o.Status })
	plain("endpointslices", func(l *discoveryv1.EndpointSliceList) *[]discoveryv1.EndpointSlice { return &l.Items })
	plain("exportrecords", func(l *v1alpha1.ExportRecordList) *[]v1alpha1.ExportRecord { return &l.Items })
	plain("clustersets", func(l *v1alpha1.ClusterSetList) *[]v1alpha1.ClusterSet { return &l.Items })
	plain("leases", func(l *coordinationv1.LeaseList) *[]coordinationv1.Lease { return &l.Items })
	plain("namespaces", func(l *corev1.NamespaceList) *[]corev1.Namespace { return &l.Items })
	plain("nodes", func(l *corev1.NodeList) *[]corev1.Node { return &l.Items })
	plain("secrets", func(l *corev1.SecretList) *[]corev1.Secret { return &l.Items })
	plain("configmaps", func(l *corev1.ConfigMapList) *[]corev1.ConfigMap { return &l.Items })
	plain("servicecidrs", func(l *networkingv1.ServiceCIDRList) *[]networkingv1.ServiceCIDR { return &l.Items })
	plain("clusterproperties", func(l *aboutv1beta1.ClusterPropertyList) *[]aboutv1beta1.ClusterProperty { return &l.Items })
	plain("clusterclaims", func(l *claimsv1.ClusterClaimList) *[]claimsv1.ClusterClaim { return &l.Items })
}

// plain registers a kind without a status subresource.
func plain[T, L any, P interface {
	*T
	client.Object
}](name string, items func(*L) *[]T) {
	register[T, L, struct{}, P](name, items, nil)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
