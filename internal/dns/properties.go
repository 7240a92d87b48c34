package dns

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// usedProperties are the ClusterProperties that answers depend on.
var usedProperties = []string{aboutv1beta1.PropertyClusterID, v1alpha1.PropertyUnreachableClusters}

// watchProperties watches the ClusterProperties. A selector of fields can name only one, and a
// cluster has few, so all are read.
func (c *controller) watchProperties() {
	lw := cache.NewListWatchFromClient(c.about, "clusterproperties", metav1.NamespaceAll, fields.Everything())
	store := &reflectorStore{
		reduce: func(o any) (any, error) { return o, nil },
		set: func(o any) {
			p := o.(*aboutv1beta1.ClusterProperty)
			c.setProperty(p.Name, p.Spec.Value)
		},
		remove: func(o any) { c.setProperty(o.(*aboutv1beta1.ClusterProperty).Name, "") },
		retain: func(objects []any) {
			listed := make(map[string]bool, len(objects))
			for _, o := range objects {
				listed[o.(*aboutv1beta1.ClusterProperty).Name] = true
			}
			for _, name := range usedProperties {
				if !listed[name] {
					c.setProperty(name, "")
				}
			}
		},
		synced: c.propertiesRead.open,
	}
	listed := listWatch{lw.ListWithContextFunc, lw.WatchFuncWithContext}
	runReflector(c.ctx, "ClusterProperties", listed, &aboutv1beta1.ClusterProperty{}, store, func(_ string, err error) {
		// Without the CRD, or without permission to read it, the cluster's id is unknown, all
		// clusters are equally far, and all count as reachable.
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			c.propertiesRead.open()
		}
	})
}

// setProperty uses the value of a property, empty if it does not exist.
func (c *controller) setProperty(name, value string) {
	switch name {
	case aboutv1beta1.PropertyClusterID:
		if !c.fixedClusterID {
			onClusterID(value)
			c.state.setLocality(func(l *zone.Locality) { l.Cluster = value })
		}
	case v1alpha1.PropertyUnreachableClusters:
		if c.state.setUnreachable(reachable.Parse(value)) {
			log.Infof("other clusters became unreachable or reachable; unreachable: %q", value)
		}
	}
}
