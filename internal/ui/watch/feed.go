package watch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is what is watched of a kind.
type Kind struct {
	Object client.Object
	// Namespace restricts it; empty for all.
	Namespace string
	// Field restricts it further; nil for all.
	Field fields.Selector
}

// Times of a watch.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 5 * time.Second
	// retryRefused is the time after which a kind is tried again that the API server does not have, or
	// does not let the user read.
	retryRefused = 15 * time.Second
)

// Feed holds the kinds and watches them until the context ends. config must not have a timeout,
// which would end watches.
func (c *Cache) Feed(ctx context.Context, config *rest.Config, kinds []Kind) (done *sync.WaitGroup, err error) {
	source, err := client.NewWithWatch(config, client.Options{Scheme: c.scheme})
	if err != nil {
		return nil, err
	}
	done = &sync.WaitGroup{}
	for _, k := range kinds {
		if err := c.Hold(k.Object); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		gvk, err := c.kindOf(k.Object)
		if err != nil {
			return nil, err
		}
		done.Go(func() { c.follow(ctx, source, gvk, k) })
	}
	return done, nil
}

// follow keeps one kind up to date.
func (c *Cache) follow(ctx context.Context, source client.WithWatch, gvk schema.GroupVersionKind, k Kind) {
	into := &store{c, gvk}
	backoff := wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 10, Cap: retryMax}
	reflector := cache.NewReflectorWithOptions(listWatch(c.scheme, source, gvk, k), k.Object, into, cache.ReflectorOptions{Name: gvk.Kind})
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(ctx)
		pause := backoff.Step()
		switch {
		case err == nil: // the API server ended the watch
			backoff.Duration, backoff.Steps, pause = retryFirst, 10, retryFirst
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			into.refuse(err)
			pause = retryRefused
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listWatch returns how one kind is listed and watched.
func listWatch(scheme *runtime.Scheme, source client.WithWatch, gvk schema.GroupVersionKind, k Kind) *cache.ListWatch {
	newList := func() (client.ObjectList, error) {
		list, err := scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		typed, ok := list.(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("%T is no list", list)
		}
		return typed, nil
	}
	optionsOf := func(raw metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: k.Namespace, FieldSelector: k.Field, Raw: &raw}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list, err := newList()
			if err != nil {
				return nil, err
			}
			options := optionsOf(raw)
			options.Limit, options.Continue = raw.Limit, raw.Continue
			return list, source.List(ctx, list, options)
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			list, err := newList()
			if err != nil {
				return nil, err
			}
			return source.Watch(ctx, list, optionsOf(raw))
		},
	}
}

// WaitSynced waits until all kinds were read, or found to be refused.
func (c *Cache) WaitSynced(ctx context.Context) error {
	const poll = 20 * time.Millisecond
	err := wait.PollUntilContextCancel(ctx, poll, true, func(context.Context) (bool, error) { return len(c.unsynced()) == 0, nil })
	if err != nil {
		return fmt.Errorf("%s could not be read in time", strings.Join(c.unsynced(), ", "))
	}
	return nil
}

// store receives the objects of one kind from a reflector.
type store struct {
	cache *Cache
	gvk   schema.GroupVersionKind
}

// Add adds an object.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update adds or replaces an object.
func (s *store) Update(obj any) error {
	typed, ok := obj.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", obj)
	}
	trim(typed)
	s.change(func(k *kind) { k.put(typed) })
	s.cache.changed(typed)
	return nil
}

// Delete removes an object.
func (s *store) Delete(obj any) error {
	typed, ok := obj.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", obj)
	}
	s.change(func(k *kind) { k.remove(client.ObjectKeyFromObject(typed)) })
	s.cache.changed(typed)
	return nil
}

// Replace sets all objects.
func (s *store) Replace(list []any, _ string) error {
	objs := make([]client.Object, 0, len(list))
	for _, obj := range list {
		typed, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", obj)
		}
		objs = append(objs, typed)
	}
	return s.replace(objs)
}

func (s *store) replace(objs []client.Object) error {
	fresh := &kind{objects: make(map[types.NamespacedName]client.Object, len(objs)), byLabel: map[labelled][]client.Object{}, synced: true}
	for _, obj := range objs {
		trim(obj)
		fresh.put(obj)
	}
	s.cache.mu.Lock()
	old := s.cache.kinds[s.gvk]
	s.cache.kinds[s.gvk] = fresh
	s.cache.mu.Unlock()
	if old == nil {
		return fmt.Errorf("%s is not held", s.gvk.Kind)
	}
	for key, obj := range old.objects {
		if _, still := fresh.objects[key]; !still {
			s.cache.changed(obj)
		}
	}
	for key, obj := range fresh.objects {
		if before, known := old.objects[key]; !known || before.GetResourceVersion() != obj.GetResourceVersion() || obj.GetResourceVersion() == "" {
			s.cache.changed(obj)
		}
	}
	return nil
}

// Resync does nothing: there is no copy to compare with.
func (s *store) Resync() error { return nil }

// Transformer makes the reflector trim objects as they arrive.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if typed, ok := obj.(client.Object); ok {
			trim(typed)
		}
		return obj, nil
	}
}

// refuse notes why the kind cannot be read.
func (s *store) refuse(err error) { s.change(func(k *kind) { k.problem = err }) }

func (s *store) change(do func(*kind)) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	do(s.cache.kinds[s.gvk])
}
