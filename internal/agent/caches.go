package agent

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/objects"
)

// localCache returns the options of the cache of this cluster's objects. Services and slices are
// most of it, so their fields that the agent does not read are dropped. The budget is 80 MiB of
// resident memory at 1,000 exports.
func localCache() cache.Options {
	return cache.Options{
		DefaultTransform: stripMeta,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:               {Transform: member.StripNode},
			&corev1.Secret{}:             oneSecret(objects.MembershipSecret),
			&corev1.Namespace{}:          {Transform: stripNamespace},
			&corev1.Service{}:            {Transform: stripService},
			&discoveryv1.EndpointSlice{}: {Transform: stripSlice},
			&mcsv1beta1.ServiceImport{}:  {Transform: stripImport},
		},
	}
}

// invitationCache returns the options of a cache of the invitation. It is a cache of its own,
// because a watch can select one name only, and the agent may not read other Secrets.
func invitationCache(scheme *runtime.Scheme) cache.Options {
	return cache.Options{
		Scheme: scheme, Mapper: newMapper(), DefaultTransform: stripMeta,
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: oneSecret(objects.InvitationSecret)},
	}
}

// oneSecret limits Secrets to one of the agent's namespace.
func oneSecret(name string) cache.ByObject {
	return cache.ByObject{
		Namespaces: map[string]cache.Config{objects.AgentNamespace: {}},
		Field:      fields.OneTermEqualSelector(metav1.ObjectNameField, name),
	}
}

// brokerCache returns the options of the cache of the broker's namespace; broker reads with the
// cache's own connection, but not from it. Slices that this cluster published are only compared
// with their desired state, so a digest of them is enough. Of other members' objects it holds what
// is read, and no more than foreign allows. Objects of services are read only if they are in
// namespaces that concern this cluster.
func brokerCache(broker client.Reader, namespace string, namespaces *subscription.Namespaces, foreign *foreignContent) cache.Options {
	published := cache.ByObject{Transform: func(obj any) (any, error) {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok && s.Labels[mcsv1beta1.LabelSourceCluster] == foreign.own {
			apply.ReplaceByDigest(s)
		}
		if o, ok := obj.(client.Object); ok {
			foreign.strip(o)
		}
		return stripMeta(obj)
	}}
	return cache.Options{
		NewInformer:       selectedBy(broker, namespace, namespaces),
		DefaultTransform:  stripMeta,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			// Other members' renewals are not watched: see member.LeaseReader.
			&coordinationv1.Lease{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, foreign.own)},

			&v1alpha1.ExportRecord{}: published, &discoveryv1.EndpointSlice{}: published, &mcsv1beta1.ServiceImport{}: published,
		},
	}
}

// newInformer is a function that creates an informer.
type newInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// selectedBy returns what creates the informers of the broker's kinds.
func selectedBy(broker client.Reader, brokerNamespace string, namespaces *subscription.Namespaces) newInformer {
	return func(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		create := func(lw toolscache.ListerWatcher) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(lw, kind, resync, indexers)
		}
		switch kind.(type) {
		case *v1alpha1.Cluster:
			return newClusterInformer(lw, broker, brokerNamespace, create)
		case *v1alpha1.ExportRecord, *discoveryv1.EndpointSlice, *mcsv1beta1.ServiceImport:
			return subscription.NewInformer(lw, brokerNamespace, namespaces, create)
		}
		return create(lw)
	}
}

func stripMeta(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	internStrings(obj)
	return obj, nil
}

func stripNamespace(obj any) (any, error) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		ns.ManagedFields, ns.Annotations, ns.Spec, ns.Status = nil, nil, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	}
	return obj, nil
}

// stripService also drops labels and annotations, which are never exported. Derived Services keep
// everything, since the agent updates them.
func stripService(obj any) (any, error) {
	if svc, ok := obj.(*corev1.Service); ok {
		if _, derived := objects.DerivedFrom(svc); derived {
			return stripMeta(obj)
		}
		svc.Labels, svc.Annotations, svc.Spec.Selector, svc.Status = nil, nil, nil, corev1.ServiceStatus{}
	}
	return stripMeta(obj)
}

// stripSlice drops the references to pods: other clusters only use names and addresses. Imported
// slices are only compared with their desired state, so a digest of them is enough. Slices of a
// broker on this API server are read from the broker's cache, so nothing of them is held here.
func stripSlice(obj any) (any, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	if s.Labels[discoveryv1.LabelManagedBy] == objects.ManagedBy {
		if isOnBroker(s) {
			keepKeys(s, sliceLabels, nil)
		}
		apply.ReplaceByDigest(s)
	}
	for i := range s.Endpoints {
		s.Endpoints[i].TargetRef = nil
	}
	return stripMeta(obj)
}

// stripImport drops the content of aggregates of a broker on this API server: they are read from
// the broker's cache.
func stripImport(obj any) (any, error) {
	if si, ok := obj.(*mcsv1beta1.ServiceImport); ok && isOnBroker(si) {
		keepKeys(si, aggregateLabels, nil)
		si.Spec, si.Status = mcsv1beta1.ServiceImportSpec{}, mcsv1beta1.ServiceImportStatus{}
	}
	return stripMeta(obj)
}

// isOnBroker reports whether an object belongs to a broker.
func isOnBroker(obj client.Object) bool {
	_, onBroker := obj.GetLabels()[v1alpha1.LabelServiceNamespace]
	return onBroker
}
