// Package watch keeps objects of API servers in memory by watching them, and answers reads from
// there: survey reads a Cache as it reads an API server, at no cost for the latter.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Cache holds objects of one API server. Its Get and List return them without a copy: callers must
// not change what they read.
type Cache struct {
	// Client answers for kinds that are not held. It is nil if there is no API server to ask.
	client.Client
	scheme *runtime.Scheme
	// changed is called with each object that was added, changed or deleted.
	changed func(client.Object)

	mu    sync.RWMutex
	kinds map[schema.GroupVersionKind]*kind
}

// New returns an empty cache in front of a client, which may be nil. changed is called with each
// object that was added, changed or deleted, and must not read the cache; it may be nil.
func New(c client.Client, scheme *runtime.Scheme, changed func(client.Object)) *Cache {
	if changed == nil {
		changed = func(client.Object) {}
	}
	return &Cache{Client: c, scheme: scheme, changed: changed, kinds: map[schema.GroupVersionKind]*kind{}}
}

// indexedLabels are the labels by which objects of one service are found.
var indexedLabels = []string{discoveryv1.LabelServiceName, mcsv1beta1.LabelServiceName}

type labelled struct{ label, namespace, value string }

// kind holds the objects of one kind.
type kind struct {
	objects map[types.NamespacedName]client.Object
	byLabel map[labelled][]client.Object
	// problem is why the kind cannot be read; nil if it can.
	problem error
	synced  bool
}

// Hold makes the cache answer for a kind. Until it is filled, reads fail.
func (c *Cache) Hold(obj client.Object) error {
	gvk, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[gvk] = &kind{objects: map[types.NamespacedName]client.Object{}, byLabel: map[labelled][]client.Object{}}
	return nil
}

func (c *Cache) kindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := c.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gvks[0], nil
}

var errNotRead = errors.New("not read yet")

// readable returns the objects of a kind, or why they cannot be read. held is false for kinds that
// the cache does not hold. The caller holds the lock.
func (c *Cache) readable(gvk schema.GroupVersionKind) (k *kind, held bool, err error) {
	k, held = c.kinds[gvk]
	switch {
	case !held:
		return nil, false, nil
	case k.problem != nil:
		return nil, true, k.problem
	case !k.synced:
		return nil, true, fmt.Errorf("%s: %w", gvk.Kind, errNotRead)
	}
	return k, true, nil
}

// Get implements client.Reader.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	found, held, err := c.get(gvk, key)
	switch {
	case err != nil:
		return err
	case !held && c.Client != nil:
		return c.Client.Get(ctx, key, obj, opts...)
	case found != nil:
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found).Elem())
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.String())
}

// get returns an object that is held; nil if there is none.
func (c *Cache) get(gvk schema.GroupVersionKind, key types.NamespacedName) (found client.Object, held bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, held, err := c.readable(gvk)
	if k == nil || err != nil {
		return nil, held, err
	}
	return k.objects[key], true, nil
}

// List implements client.Reader. Of the options it supports namespaces and labels.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := c.kindOf(list)
	if err != nil {
		return err
	}
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	found, held, err := c.list(gvk, (&client.ListOptions{}).ApplyOptions(opts))
	switch {
	case err != nil:
		return err
	case !held && c.Client != nil:
		return c.Client.List(ctx, list, opts...)
	case !held:
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return setItems(list, found)
}

// list returns the objects of a kind that is held.
func (c *Cache) list(gvk schema.GroupVersionKind, o *client.ListOptions) (found []client.Object, held bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, held, err := c.readable(gvk)
	if k == nil || err != nil {
		return nil, held, err
	}
	return k.find(o.Namespace, o.LabelSelector), true, nil
}

// find returns the objects of a namespace, or of all if it is empty, that a selector matches; nil
// matches all. They are sorted by their names, as those of an API server are.
func (k *kind) find(namespace string, selector labels.Selector) []client.Object {
	var out []client.Object
	add := func(obj client.Object) {
		if (namespace == "" || obj.GetNamespace() == namespace) && (selector == nil || selector.Matches(labels.Set(obj.GetLabels()))) {
			out = append(out, obj)
		}
	}
	if candidates, indexed := k.candidates(namespace, selector); indexed {
		for _, obj := range candidates {
			add(obj)
		}
	} else {
		for _, obj := range k.objects {
			add(obj)
		}
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// candidates returns the objects with an indexed label that the selector requires. indexed is false
// if it requires none.
func (k *kind) candidates(namespace string, selector labels.Selector) (out []client.Object, indexed bool) {
	if selector == nil || namespace == "" {
		return nil, false
	}
	for _, label := range indexedLabels {
		if value, exact := selector.RequiresExactMatch(label); exact {
			return k.byLabel[labelled{label, namespace, value}], true
		}
	}
	return nil, false
}

// setItems sets the items of a typed list.
func setItems(list client.ObjectList, objs []client.Object) error {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(pointer).Elem()
	out := reflect.MakeSlice(items.Type(), len(objs), len(objs))
	for i, obj := range objs {
		out.Index(i).Set(reflect.ValueOf(obj).Elem())
	}
	items.Set(out)
	return nil
}

// put adds or replaces an object. The caller holds the lock.
func (k *kind) put(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	k.remove(key)
	k.objects[key] = obj
	for _, label := range indexedLabels {
		if value := obj.GetLabels()[label]; value != "" {
			at := labelled{label, obj.GetNamespace(), value}
			k.byLabel[at] = append(k.byLabel[at], obj)
		}
	}
}

func (k *kind) remove(key types.NamespacedName) {
	old, ok := k.objects[key]
	if !ok {
		return
	}
	delete(k.objects, key)
	for _, label := range indexedLabels {
		at := labelled{label, key.Namespace, old.GetLabels()[label]}
		rest := slices.DeleteFunc(k.byLabel[at], func(obj client.Object) bool { return obj.GetName() == key.Name })
		if len(rest) == 0 {
			delete(k.byLabel, at)
		} else {
			k.byLabel[at] = rest
		}
	}
}

// Fill sets all objects of a kind that is held. Objects of other kinds are an error.
func (c *Cache) Fill(example client.Object, objs []client.Object) error {
	gvk, err := c.kindOf(example)
	if err != nil {
		return err
	}
	return (&store{c, gvk}).replace(objs)
}

// unsynced returns the kinds that were neither read nor refused yet.
func (c *Cache) unsynced() (unsynced []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for gvk, k := range c.kinds {
		if !k.synced && k.problem == nil {
			unsynced = append(unsynced, gvk.Kind)
		}
	}
	slices.Sort(unsynced)
	return unsynced
}
