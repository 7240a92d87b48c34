// Package apply writes the difference between what is and what should be, and remembers what it wrote until the watch has
// shown it: a reconciler that reads a cache older than its own last write would write again.
package apply

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// EchoPatience bounds how long a key waits for the echo of a write. It is only reached when a server lost the write (it was
// reset to an older state): then reading the cache again is right.
const CacheTimeout = 5 * time.Second

// Changes are the writes that turn what is into what should be. Updates carry the resourceVersion they were decided on, so
// a concurrent writer is noticed rather than overwritten.
type Changes struct {
	Create []client.Object
	Update []client.Object
	Delete []client.Object
}

// Empty tells that there is nothing to write.
func (c Changes) Empty() bool { return len(c.Create)+len(c.Update)+len(c.Delete) == 0 }

// Writer applies changes to one API server on behalf of reconcile keys.
type Writer struct {
	// Wrote, when set, is told of every write that succeeded: for which key, how and what.
	OnWrite func(key types.NamespacedName, verb string, obj client.Object)

	client client.Client

	mu      sync.Mutex
	pending map[types.NamespacedName]*pendingWrites
}

type pendingWrites struct {
	writes []pendingWrite
	since  time.Time
}

// echo is a write the cache has yet to show.
type pendingWrite struct {
	kind    reflect.Type
	name    types.NamespacedName
	uid     types.UID
	version int64 // 0: the object was deleted
}

// echoOf keeps no more of an object than is needed to recognize it: there may be thousands.
func pendingWriteOf(obj client.Object, version int64) pendingWrite {
	return pendingWrite{kind: reflect.TypeOf(obj).Elem(), name: client.ObjectKeyFromObject(obj), uid: obj.GetUID(), version: version}
}

// NewWriter returns a writer for the API server behind c. Reads of c must come from a cache that watches what is written.
func NewWriter(c client.Client) *Writer {
	return &Writer{client: c, pending: map[types.NamespacedName]*pendingWrites{}}
}

// Apply makes the changes, all at once, and returns when all are done. An object that is already gone counts as deleted.
func (w *Writer) Apply(ctx context.Context, key types.NamespacedName, c Changes) error {
	var group errorGroup
	for _, obj := range c.Create {
		group.Go(func() error { return w.Create(ctx, key, obj) })
	}
	for _, obj := range c.Update {
		group.Go(func() error { return w.Update(ctx, key, obj) })
	}
	for _, obj := range c.Delete {
		group.Go(func() error { return w.Delete(ctx, key, obj) })
	}
	return group.Wait()
}

// Create creates obj for key. An object of that name that somebody relabelled, so that it was not found as ours, is replaced.
func (w *Writer) Create(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	err := w.client.Create(ctx, obj)
	if apierrors.IsAlreadyExists(err) {
		err = w.replace(ctx, obj, err)
	}
	if err != nil {
		return err
	}
	w.recordWrite(key, "create", obj)
	return nil
}

// replace puts obj in the place of one of the same name whose labels say something else. Slices and records have names that
// nobody else makes; a ServiceImport has the name of a Service, may be anybody's, and is never replaced. Without such an object
// in the cache the cause is another, and stays.
func (w *Writer) replace(ctx context.Context, obj client.Object, exists error) error {
	if _, named := obj.(*mcsv1beta1.ServiceImport); named {
		return exists
	}
	old, ok := obj.DeepCopyObject().(client.Object)
	if !ok || w.client.Get(ctx, client.ObjectKeyFromObject(obj), old) != nil || old.GetDeletionTimestamp() != nil ||
		equality.Semantic.DeepEqual(old.GetLabels(), obj.GetLabels()) {
		return exists
	}
	err := w.client.Delete(ctx, old, client.Preconditions{UID: ptr.To(old.GetUID()), ResourceVersion: ptr.To(old.GetResourceVersion())})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return w.client.Create(ctx, obj)
}

// Update updates obj for key.
func (w *Writer) Update(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	if err := w.client.Update(ctx, obj); err != nil {
		return err
	}
	w.recordWrite(key, "update", obj)
	return nil
}

// UpdateStatus updates the status of obj for key.
func (w *Writer) UpdateStatus(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	if err := w.client.Status().Update(ctx, obj); err != nil {
		return err
	}
	w.recordWrite(key, VerbStatus, obj)
	return nil
}

// Delete deletes exactly the obj that was read: one that changed since, or a new one of the same name, stays.
func (w *Writer) Delete(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	err := w.client.Delete(ctx, obj, client.Preconditions{UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion())})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if w.OnWrite != nil {
		w.OnWrite(key, "delete", obj)
	}
	w.addPending(key, pendingWriteOf(obj, 0))
	return nil
}

// VerbStatus is the verb of a write to the status alone: for people, not on the way of a service to its clients.
const VerbStatus = "update_status"

func (w *Writer) recordWrite(key types.NamespacedName, verb string, obj client.Object) {
	if w.OnWrite != nil {
		w.OnWrite(key, verb, obj)
	}
	if version := resourceVersion(obj); version > 0 {
		w.addPending(key, pendingWriteOf(obj, version))
	}
}

func (w *Writer) addPending(key types.NamespacedName, e pendingWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		p = &pendingWrites{}
		w.pending[key] = p
	}
	p.since = time.Now()
	p.writes = append(p.writes, e)
}

// Settled tells whether the cache shows everything written for key. While it does not, deciding again would repeat writes;
// the echo itself will trigger the next reconcile.
func (w *Writer) CacheIsCurrent(ctx context.Context, key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		return true
	}
	for _, e := range p.writes {
		if !w.isObserved(ctx, e) && time.Since(p.since) < CacheTimeout {
			return false
		}
	}
	delete(w.pending, key)
	return true
}

func (w *Writer) isObserved(ctx context.Context, e pendingWrite) bool {
	seen, ok := reflect.New(e.kind).Interface().(client.Object)
	if !ok {
		return true
	}
	err := w.client.Get(ctx, e.name, seen)
	if e.version == 0 {
		return apierrors.IsNotFound(err) || (err == nil && seen.GetUID() != e.uid)
	}
	// Not in the cache: either not yet, or deleted since. Not yet is far more likely, and patience bounds the other.
	return err == nil && resourceVersion(seen) >= e.version
}

// resourceVersion is an integer that grows with every write (KEP-5504); 0 where a server does otherwise, which turns the
// waiting off.
func resourceVersion(obj client.Object) int64 {
	v, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// errorGroup runs functions side by side and joins all their errors: one failed write must not hide another.
type errorGroup struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// Go runs f.
func (g *errorGroup) Go(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs = append(g.errs, err)
		}
	})
}

// Wait waits for all and returns their errors.
func (g *errorGroup) Wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}
