package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// view is an agent's cache of one API server. It lags: each change is delivered on its own, when
// the scheduler decides so.
type view struct {
	cache.Cache // nil: what is not modelled panics

	server *server
	agent  *agentProcess
	// transforms are what the agent's cache does with objects before it stores them, by the type.
	// All members do the same with the other types.
	transforms map[reflect.Type]toolscache.TransformFunc
	transform  toolscache.TransformFunc
	// cut is true while the watches are interrupted.
	cut bool
	// written are the agent's last writes to objects.
	written map[objectKey]ownWrite

	mu        sync.Mutex
	informers map[reflect.Type]*informer
	order     []*informer
	indexers  map[reflect.Type]map[string]client.IndexerFunc
}

func newView(s *server, a *agentProcess, options cache.Options) *view {
	byType := map[reflect.Type]toolscache.TransformFunc{}
	for obj, by := range options.ByObject {
		if by.Transform != nil {
			byType[reflect.TypeOf(obj)] = by.Transform
		}
	}
	return &view{
		server: s, agent: a, informers: map[reflect.Type]*informer{}, indexers: map[reflect.Type]map[string]client.IndexerFunc{},
		transforms: byType, transform: options.DefaultTransform, written: map[objectKey]ownWrite{},
	}
}

// informer is the cache of one kind.
type informer struct {
	view     *view
	typ      reflect.Type
	store    *store
	objects  []*cached       // sorted by name
	found    []client.Object // by the last list; kept for its memory
	handlers []toolscache.ResourceEventHandler
	synced   atomic.Bool
	epoch    int
	position int
	mustList bool
	frozen   bool // delivers nothing for a while
	queued   bool // is in the world's list of informers with changes to deliver
}

type cached struct {
	key     types.NamespacedName
	obj     client.Object
	indexed map[string][]string
}

// GetInformer implements cache.Informers.
func (v *view) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return v.informer(reflect.TypeOf(obj)), nil
}

func (v *view) informer(t reflect.Type) *informer {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := v.informers[t]
	if i == nil {
		i = &informer{view: v, typ: t, store: v.server.store(t)}
		v.informers[t] = i
		v.order = append(v.order, i)
		i.store.watchers = append(i.store.watchers, i)
		i.wake()
	}
	return i
}

// close ends all watches.
func (v *view) close() {
	for _, i := range v.order {
		i.store.watchers = slices.DeleteFunc(i.store.watchers, func(other *informer) bool { return other == i })
	}
}

// IndexField implements client.FieldIndexer.
func (v *view) IndexField(_ context.Context, obj client.Object, field string, f client.IndexerFunc) error {
	t := reflect.TypeOf(obj)
	if v.indexers[t] == nil {
		v.indexers[t] = map[string]client.IndexerFunc{}
	}
	v.indexers[t][field] = f
	return nil
}

// WaitForCacheSync implements cache.Informers.
func (v *view) WaitForCacheSync(context.Context) bool { return true }

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	if i.synced.Load() {
		for _, c := range i.objects {
			h.OnAdd(c.obj, true)
		}
	}
	return i, nil
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, _ time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// RemoveEventHandler implements cache.Informer.
func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

// AddIndexers implements cache.Informer.
func (i *informer) AddIndexers(toolscache.Indexers) error { return errors.ErrUnsupported }

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool { return i.synced.Load() }

// HasSyncedChecker implements cache.Informer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return nil }

// IsStopped implements cache.Informer.
func (i *informer) IsStopped() bool { return i.view.agent.stopped }

// wake puts the informer into the world's list if it has something to deliver.
func (i *informer) wake() {
	if i.queued || !i.hasWork() {
		return
	}
	i.queued = true
	w := i.view.agent.member.world
	w.deliverable = append(w.deliverable, i)
}

func (i *informer) hasWork() bool {
	if i.view.cut || i.frozen || i.view.agent.stopped {
		return false
	}
	if !i.synced.Load() || i.mustList {
		return true
	}
	return i.epoch == i.view.server.epoch && i.position < len(i.store.log)
}

// deliver delivers one change, or a list if the informer has to begin with one. behind is by how
// many changes such a list is stale.
func (i *informer) deliver(behind int) {
	if !i.synced.Load() || i.mustList {
		i.list(behind)
		return
	}
	c := i.store.log[i.position]
	i.position++
	i.apply(c)
}

func (i *informer) apply(c change) {
	key := client.ObjectKeyFromObject(c.obj)
	at, known := i.find(key)
	switch {
	case c.deleted && known:
		old := i.objects[at].obj
		i.objects = slices.Delete(i.objects, at, at+1)
		for _, h := range i.handlers {
			h.OnDelete(old)
		}
	case c.deleted:
	case known:
		i.replace(at, c.obj)
	default:
		i.insert(at, key, c.obj)
	}
}

func (i *informer) insert(at int, key types.NamespacedName, obj client.Object) {
	added := i.cache(key, obj)
	i.objects = slices.Insert(i.objects, at, added)
	for _, h := range i.handlers {
		h.OnAdd(added.obj, !i.synced.Load())
	}
}

func (i *informer) replace(at int, obj client.Object) {
	old := i.objects[at].obj
	i.objects[at] = i.cache(i.objects[at].key, obj)
	if old.GetResourceVersion() == obj.GetResourceVersion() && old.GetUID() == obj.GetUID() {
		return // a restored server gives out versions again; informers then tell no handler of the change
	}
	for _, h := range i.handlers {
		h.OnUpdate(old, i.objects[at].obj)
	}
}

// cacheKey is an object of a server as the caches of one member have it, or of all if it is "".
type cacheKey struct {
	obj    client.Object
	member string
}

// cache returns an object as the agent's cache has it. Caches share such objects with those of the
// same member's other processes, and with those of other members that would do the same with it.
func (i *informer) cache(key types.NamespacedName, obj client.Object) *cached {
	at := cacheKey{obj: obj}
	f, own := i.view.transforms[i.typ]
	if own {
		at.member = i.view.agent.member.id
	} else {
		f = i.view.transform
	}
	if out := i.store.cached[at]; out != nil {
		return out
	}
	transformed := obj
	if f != nil {
		copied, err := f(obj.DeepCopyObject())
		if err != nil {
			panic(err)
		}
		transformed = copied.(client.Object)
	}
	out := &cached{key: key, obj: transformed}
	for field, f := range i.view.indexers[i.typ] {
		if out.indexed == nil {
			out.indexed = map[string][]string{}
		}
		out.indexed[field] = f(out.obj)
	}
	i.store.cached[at] = out
	i.view.server.detector.watch(out.obj)
	return out
}

// list replaces the content by a list of the server. Objects that are gone are reported as missed
// deletions.
func (i *informer) list(behind int) {
	seen := 0
	if i.epoch == i.view.server.epoch {
		seen = i.position // a watch lists from the last version that it has seen
	}
	state, keys, position := i.store.stateAt(behind, seen)
	i.epoch, i.position, i.mustList = i.view.server.epoch, position, false
	for at := len(i.objects) - 1; at >= 0; at-- {
		c := i.objects[at]
		if _, exists := state[c.key]; !exists {
			i.objects = slices.Delete(i.objects, at, at+1)
			for _, h := range i.handlers {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: c.key.String(), Obj: c.obj})
			}
		}
	}
	for _, key := range keys {
		if at, known := i.find(key); known {
			i.replace(at, state[key])
		} else {
			i.insert(at, key, state[key])
		}
	}
	i.synced.Store(true)
}

func (i *informer) find(key types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(i.objects, key, func(c *cached, key types.NamespacedName) int { return compareNames(c.key, key) })
}

// Get implements client.Reader.
func (v *view) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	i := v.informer(reflect.TypeOf(obj))
	at, known := i.find(key)
	k := kindOf(obj)
	if !known {
		return k.notFound
	}
	k.set(obj, i.objects[at].obj)
	return nil
}

// List implements client.Reader.
func (v *view) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k := lists[reflect.TypeOf(list)]
	if k == nil {
		panic(fmt.Sprintf("lists of %T are not modelled", list))
	}
	i := v.informer(typesByKind[k])
	wanted := newSelector(opts)
	items := i.found[:0]
	for _, c := range i.objects {
		if wanted.matches(c.obj, c.indexed) {
			items = append(items, c.obj)
		}
	}
	k.fill(list, items)
	i.found = items
	return nil
}

// selector is what the options of a list select.
type selector struct {
	namespace    string
	labels       client.MatchingLabels
	field, value string
}

func newSelector(opts []client.ListOption) selector {
	var s selector
	for _, opt := range opts {
		switch o := opt.(type) {
		case client.InNamespace:
			s.namespace = string(o)
		case client.MatchingFields:
			for field, value := range o { // there is only one
				s.field, s.value = field, value
			}
		case client.MatchingLabels:
			s.labels = o
		default:
			var rest client.ListOptions
			if o.ApplyToList(&rest); rest.FieldSelector != nil || rest.LabelSelector != nil || rest.Namespace != "" {
				panic("these options of lists are not modelled")
			}
		}
	}
	return s
}

func (s selector) matches(obj client.Object, indexed map[string][]string) bool {
	if s.namespace != "" && obj.GetNamespace() != s.namespace {
		return false
	}
	for key, value := range s.labels {
		if got, has := obj.GetLabels()[key]; !has || got != value {
			return false
		}
	}
	switch s.field {
	case "":
		return true
	case metav1.ObjectNameField:
		return obj.GetName() == s.value
	}
	return slices.Contains(indexed[s.field], s.value)
}
