package agent

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// perChanged is for how many Clusters one that changed is read by name.
const perChanged = 64

// clusterLister lists the Clusters of the broker. All members list them again when the broker was
// away, and have nearly all of them, so only versions are listed then, and what changed is read by
// name. The broker sends versions as protobuf; a custom resource it copies and encodes as JSON.
type clusterLister struct {
	toolscache.ListerWatcher
	toolscache.ListerWatcherWithContext
	// broker reads as the informer does, without a cache.
	broker    client.Reader
	namespace string
	// held returns a Cluster of the informer.
	held func(key string) (obj any, exists bool, err error)
}

// newClusterInformer returns the informer that create makes of a clusterLister.
func newClusterInformer(
	lw toolscache.ListerWatcher, broker client.Reader, namespace string,
	create func(toolscache.ListerWatcher) toolscache.SharedIndexInformer,
) toolscache.SharedIndexInformer {
	lister := &clusterLister{
		ListerWatcher: lw, ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw), broker: broker, namespace: namespace,
	}
	informer := create(lister)
	lister.held = informer.GetStore().GetByKey
	return informer
}

// IsWatchListSemanticsUnSupported makes an informer read all objects by a list. By default it reads
// each as an event of a watch, which costs the API server about three times as much.
func (*clusterLister) IsWatchListSemanticsUnSupported() bool { return true }

// List implements toolscache.Lister.
func (l *clusterLister) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

// ListWithContext implements toolscache.ListerWithContext.
func (l *clusterLister) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		return l.ListerWatcherWithContext.ListWithContext(ctx, opts) // the first list, or the server has lost the version of the last one
	}
	versions := &metav1.PartialObjectMetadataList{}
	versions.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterList"))
	if err := l.broker.List(ctx, versions, &client.ListOptions{Namespace: l.namespace, Raw: opts.DeepCopy()}); err != nil {
		return nil, err
	}
	same, changed := l.divide(versions.Items)
	if tooMany(len(changed), len(versions.Items)) {
		return l.ListerWatcherWithContext.ListWithContext(ctx, opts)
	}
	list := &v1alpha1.ClusterList{ListMeta: versions.ListMeta, Items: make([]v1alpha1.Cluster, len(same), len(versions.Items))}
	for i, held := range same {
		held.DeepCopyInto(&list.Items[i]) // the informer changes what it is given
	}
	for _, name := range changed {
		if err := l.addChanged(ctx, list, name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// divide returns the Clusters that the informer has in these versions, and the names of the others.
func (l *clusterLister) divide(versions []metav1.PartialObjectMetadata) (same []*v1alpha1.Cluster, changed []string) {
	for i := range versions {
		now := &versions[i]
		obj, _, _ := l.held(now.Namespace + "/" + now.Name) // what cannot be read here is read on the broker
		held, ok := obj.(*v1alpha1.Cluster)
		if ok && held.UID == now.UID && held.ResourceVersion == now.ResourceVersion {
			same = append(same, held)
		} else {
			changed = append(changed, now.Name)
		}
	}
	return same, changed
}

// tooMany reports whether so many Clusters changed that one list of all replaces a request for
// each.
func tooMany(changed, all int) bool { return changed > 1+all/perChanged }

// addChanged adds a Cluster to a list as it was in the version of the list: the watch that begins
// there shows what comes after it.
func (l *clusterLister) addChanged(ctx context.Context, list *v1alpha1.ClusterList, name string) error {
	one := &v1alpha1.ClusterList{}
	err := l.broker.List(ctx, one, &client.ListOptions{
		Namespace: l.namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name),
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	})
	if err != nil {
		return err
	}
	list.Items = append(list.Items, one.Items...)
	return nil
}
