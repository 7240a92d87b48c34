package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/internal/proxy/model"
)

// byService is the index of slices by the name of their service.
const byService = "seamark.service"

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, mcsv1beta1.Install, aboutv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// staticMapper maps the kinds that are read without discovery: the API server may be unreachable
// when a node starts.
func staticMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		corev1.SchemeGroupVersion.WithKind("Node"):                   meta.RESTScopeRoot,
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):     meta.RESTScopeNamespace,
		mcsv1beta1.SchemeGroupVersion.WithKind("ServiceImport"):      meta.RESTScopeNamespace,
		aboutv1beta1.GroupVersion.WithKind("ClusterProperty"):        meta.RESTScopeRoot,
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"): meta.RESTScopeNamespace,
		mcsv1beta1.SchemeGroupVersion.WithKind("ServiceImportList"):  meta.RESTScopeNamespace,
	} {
		mapper.Add(gvk, scope)
	}
	return mapper, nil
}

// cacheOptions limit the caches to the fields that select endpoints, so that most of a node's
// memory is left to pods. Objects of a broker on the same API server are left out.
func cacheOptions(nodeName string) cache.Options {
	// Slices of Submariner Lighthouse hold ClusterIPs, not pods, and its ServiceImports with a
	// service's name as label are what single clusters contribute.
	imported := mustSelector(labels.Parse(mcsv1beta1.LabelServiceName + ",!" + v1alpha1.LabelServiceNamespace +
		"," + discoveryv1.LabelManagedBy + "!=" + v1alpha1.ManagedByLighthouse))
	local := mustSelector(labels.Parse("!" + v1alpha1.LabelServiceNamespace + ",!" + mcsv1beta1.LabelServiceName))
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&mcsv1beta1.ServiceImport{}:     {Label: local, Transform: stripImport},
			&discoveryv1.EndpointSlice{}:    {Label: imported, Transform: newStripSlice(nodeName)},
			&aboutv1beta1.ClusterProperty{}: {Transform: stripProperty},
			&corev1.Node{}:                  {Field: named(nodeName), Transform: stripNode},
		},
	}
}

func mustSelector(s labels.Selector, err error) labels.Selector {
	if err != nil {
		panic(err) // the text is a constant
	}
	return s
}

// isUsed reports whether the proxy uses a property. A selector of fields can name only one.
func isUsed(property string) bool {
	return property == aboutv1beta1.PropertyClusterID || property == v1alpha1.PropertyClusterSetIPRanges ||
		property == v1alpha1.PropertyUnreachableClusters
}

func stripProperty(obj any) (any, error) {
	if p, ok := obj.(*aboutv1beta1.ClusterProperty); ok {
		p.ManagedFields = nil
		if !isUsed(p.Name) {
			p.Labels, p.Annotations, p.Spec.Value = nil, nil, ""
		}
	}
	return obj, nil
}

func stripImport(obj any) (any, error) {
	if si, ok := obj.(*mcsv1beta1.ServiceImport); ok {
		prefer := si.Annotations[v1alpha1.AnnotationPrefer]
		if _, ok := si.Annotations[mcsv1beta1.LabelServiceName]; ok {
			si.Spec.IPs = nil // an aggregate on a broker of Submariner Lighthouse: no service of this cluster
		}
		si.ManagedFields, si.Labels, si.Annotations, si.OwnerReferences, si.Status = nil, nil, nil, nil, mcsv1beta1.ServiceImportStatus{}
		if prefer != "" {
			si.Annotations = map[string]string{v1alpha1.AnnotationPrefer: prefer}
		}
	}
	return obj, nil
}

// Values that all endpoints share: a node can have 100,000 of them, and memory for each counts.
var (
	isTrue, isFalse = true, false
	anotherNode     = "another node"
)

// maxZones bounds the zones that are shared. There are few; slices of other clusters name them.
const maxZones = 1000

// newStripSlice returns the function that removes what the proxy does not use. The name of a node
// is compared with this node's, so the other names need no memory, unless the slice has the regions
// of its nodes.
func newStripSlice(thisNode string) func(any) (any, error) {
	var mu sync.Mutex
	zones := map[string]*string{}
	share := func(zone *string) *string {
		mu.Lock()
		defer mu.Unlock()
		if known := zones[*zone]; known != nil {
			return known
		}
		if len(zones) < maxZones {
			zones[*zone] = zone
		}
		return zone
	}
	return func(obj any) (any, error) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			return obj, nil
		}
		s.ManagedFields, s.OwnerReferences = nil, nil
		keepNodes := s.Annotations[v1alpha1.AnnotationNodeRegions] != ""
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			e.TargetRef, e.Hints, e.Hostname, e.DeprecatedTopology = nil, nil, nil, nil
			for _, condition := range []**bool{&e.Conditions.Ready, &e.Conditions.Serving, &e.Conditions.Terminating} {
				switch {
				case *condition == nil:
				case **condition:
					*condition = &isTrue
				default:
					*condition = &isFalse
				}
			}
			if e.Zone != nil {
				e.Zone = share(e.Zone)
			}
			if e.NodeName != nil && *e.NodeName != "" && *e.NodeName != thisNode && !keepNodes {
				e.NodeName = &anotherNode
			}
		}
		return s, nil
	}
}

func stripNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations, n.Spec, n.Status = nil, nil, corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return obj, nil
}

// watch marks a service as changed whenever one of its objects changes.
func (p *proxy) watch(ctx context.Context) error {
	err := p.manager.GetFieldIndexer().IndexField(ctx, &discoveryv1.EndpointSlice{}, byService, func(obj client.Object) []string {
		return []string{obj.GetLabels()[mcsv1beta1.LabelServiceName]}
	})
	if err != nil {
		return fmt.Errorf("index EndpointSlices: %w", err)
	}
	kinds := map[client.Object]func(client.Object){
		&mcsv1beta1.ServiceImport{}: func(o client.Object) { p.markChanged(client.ObjectKeyFromObject(o)) },
		&discoveryv1.EndpointSlice{}: func(o client.Object) {
			p.markChanged(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[mcsv1beta1.LabelServiceName]})
		},
		&aboutv1beta1.ClusterProperty{}: func(o client.Object) {
			switch {
			case o.GetName() == v1alpha1.PropertyUnreachableClusters:
				p.markReachabilityChanged()
			case isUsed(o.GetName()):
				p.markAllChanged()
			}
		},
	}
	if p.NodeName != "" {
		// A node's status changes every few seconds; only its zone and region matter here.
		kinds[&corev1.Node{}] = func(o client.Object) { p.nodeChanged(o) }
	}
	for kind, changed := range kinds {
		informer, err := p.manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(eventHandler(changed)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// eventHandler calls changed for every added, deleted and updated object. An update calls it with
// the old and the new object, because a slice can move to another service.
func eventHandler(changed func(client.Object)) toolscache.ResourceEventHandler {
	call := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if o, ok := obj.(client.Object); ok {
			changed(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: call, DeleteFunc: call,
		UpdateFunc: func(before, now any) {
			b, okBefore := before.(client.Object)
			n, okNow := now.(client.Object)
			if okBefore && okNow && b.GetResourceVersion() == n.GetResourceVersion() {
				return
			}
			call(before)
			call(now)
		},
	}
}

func (p *proxy) nodeChanged(o client.Object) {
	p.mu.Lock()
	same := p.zone == o.GetLabels()[corev1.LabelTopologyZone] && p.region == o.GetLabels()[corev1.LabelTopologyRegion]
	p.mu.Unlock()
	if !same {
		p.markAllChanged()
	}
}

// readProperty returns the value of a ClusterProperty, empty if it does not exist.
func (p *proxy) readProperty(ctx context.Context, name string) (string, error) {
	property := &aboutv1beta1.ClusterProperty{}
	if err := p.reader().Get(ctx, types.NamespacedName{Name: name}, property); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read ClusterProperty %s: %w", name, err)
	}
	return property.Spec.Value, nil
}

// readRanges returns the clusterset's ranges, as far as the agent has published them.
func (p *proxy) readRanges(ctx context.Context) ([]netip.Prefix, error) {
	text, err := p.readProperty(ctx, v1alpha1.PropertyClusterSetIPRanges)
	if err != nil || text == "" {
		return nil, err
	}
	return model.UsableRanges(strings.Split(text, ",")), nil
}

// readUnreachable returns the clusters that the agent cannot reach. There are none if the property
// does not exist or is unreadable.
func (p *proxy) readUnreachable(ctx context.Context) (reachable.Unreachables, error) {
	text, err := p.readProperty(ctx, v1alpha1.PropertyUnreachableClusters)
	return reachable.Parse(text), err
}

// addAffected adds the name of every service that may change when clusters become unreachable or
// reachable. It looks at all slices: an index would take memory on every node for something that is
// rare.
func (p *proxy) addAffected(ctx context.Context, clusters map[reachable.Key]bool, names map[types.NamespacedName]struct{}) error {
	var list discoveryv1.EndpointSliceList
	if err := p.reader().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for name, s := range sourcesOf(list.Items, clusters) {
		if s.affected && s.several {
			names[name] = struct{}{}
		}
	}
	return nil
}

// sources is from which clusters the slices of a service are.
type sources struct {
	first    string // one of them
	several  bool   // there are others: a service of one cluster keeps what it has
	affected bool   // one of them became unreachable or reachable
}

func sourcesOf(all []discoveryv1.EndpointSlice, changed map[reachable.Key]bool) map[types.NamespacedName]sources {
	out := make(map[types.NamespacedName]sources, len(all))
	for i := range all {
		s, key := &all[i], reachable.SourceOf(&all[i])
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[mcsv1beta1.LabelServiceName]}
		of, known := out[name]
		if !known {
			of.first = key.Cluster
		}
		of.several = of.several || of.first != key.Cluster
		of.affected = of.affected || changed[key]
		out[name] = of
	}
	return out
}

// readLocation returns this node's location, as far as the API server has it.
func (p *proxy) readLocation(ctx context.Context) (model.Location, error) {
	location := model.Location{Node: p.NodeName}
	var err error
	if location.Cluster, err = p.readProperty(ctx, aboutv1beta1.PropertyClusterID); err != nil {
		return location, err
	}
	p.ReportClusterID(location.Cluster)
	if p.NodeName == "" {
		return location, nil
	}
	node := &corev1.Node{}
	if err := p.reader().Get(ctx, types.NamespacedName{Name: p.NodeName}, node); client.IgnoreNotFound(err) != nil {
		return location, fmt.Errorf("read Node %s: %w", p.NodeName, err)
	}
	location.Zone, location.Region = node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]
	p.mu.Lock()
	p.zone, p.region = location.Zone, location.Region
	p.mu.Unlock()
	return location, nil
}

// addAllNames adds the name of every service in the cache or in the kernel.
func (p *proxy) addAllNames(ctx context.Context, names map[types.NamespacedName]struct{}) error {
	var list mcsv1beta1.ServiceImportList
	if err := p.reader().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list ServiceImports: %w", err)
	}
	for i := range list.Items {
		names[client.ObjectKeyFromObject(&list.Items[i])] = struct{}{}
	}
	for _, name := range p.syncer.Names() {
		names[name] = struct{}{}
	}
	return nil
}

// readService returns a service's objects. The ServiceImport is nil if it does not exist.
func (p *proxy) readService(
	ctx context.Context, name types.NamespacedName,
) (*mcsv1beta1.ServiceImport, []*discoveryv1.EndpointSlice, error) {
	si := &mcsv1beta1.ServiceImport{}
	err := p.reader().Get(ctx, name, si)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read ServiceImport %s: %w", name, err)
	}
	var list discoveryv1.EndpointSliceList
	err = p.reader().List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{byService: name.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, fmt.Errorf("list EndpointSlices of %s: %w", name, err)
	}
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return si, out, nil
}
