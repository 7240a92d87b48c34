// Package apply writes the difference between the actual and the desired state. It records its
// writes until the cache has observed them: a reconciler that reads a cache older than its own last
// write would write again.
package apply

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// CacheTimeout bounds how long a key waits for the cache to observe a write. It is only reached if
// the server lost the write, for example because it was restored from a backup: then deciding from
// the cache is right.
const CacheTimeout = 5 * time.Second

// Changes are the writes that turn the actual into the desired state. Updates carry the
// resourceVersion they were decided on, so a concurrent write leads to a conflict and is not
// overwritten.
type Changes struct {
	Create []client.Object
	Update []client.Object
	Delete []client.Object
}

// Empty reports whether there is nothing to write.
func (c Changes) Empty() bool { return len(c.Create)+len(c.Update)+len(c.Delete) == 0 }

// Writer applies changes to one API server on behalf of reconcile keys.
type Writer struct {
	// OnWrite, if set, is called after every write that succeeded.
	OnWrite func(key types.NamespacedName, verb string, obj client.Object)
	// WriteAll makes the writes of one Apply and returns their errors. Nil means that all are made
	// concurrently.
	WriteAll func(writes []func() error) error

	client client.Client

	mu      sync.Mutex
	pending map[types.NamespacedName]*pendingWrites
}

type pendingWrites struct {
	writes []pendingWrite
	since  time.Time
	// awaited is true if a reconcile was put off until the cache has observed all of them.
	awaited bool
}

// pendingWrite is a write that the cache has not observed yet.
type pendingWrite struct {
	kind    reflect.Type
	name    types.NamespacedName
	uid     types.UID
	version int64 // 0: the object was deleted
}

// pendingWriteOf keeps only what identifies an object: thousands of writes may be pending.
func pendingWriteOf(obj client.Object, version int64) pendingWrite {
	return pendingWrite{kind: reflect.TypeOf(obj).Elem(), name: client.ObjectKeyFromObject(obj), uid: obj.GetUID(), version: version}
}

// NewWriter returns a writer for the API server behind c. c must read from a cache that watches the
// kinds that are written.
func NewWriter(c client.Client) *Writer {
	return &Writer{client: c, pending: map[types.NamespacedName]*pendingWrites{}}
}

// Apply writes all changes concurrently and returns when all are done. An object that does not
// exist any more counts as deleted.
func (w *Writer) Apply(ctx context.Context, key types.NamespacedName, c Changes) error {
	writes := make([]func() error, 0, len(c.Create)+len(c.Update)+len(c.Delete))
	for _, obj := range c.Create {
		writes = append(writes, func() error { return w.Create(ctx, key, obj) })
	}
	for _, obj := range c.Update {
		writes = append(writes, func() error { return w.Update(ctx, key, obj) })
	}
	for _, obj := range c.Delete {
		writes = append(writes, func() error { return w.Delete(ctx, key, obj) })
	}
	if w.WriteAll != nil {
		return w.WriteAll(writes)
	}
	return concurrently(writes)
}

// Create creates obj for key. An object of that name whose labels were changed by another client,
// so that it was not found as managed, is replaced.
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

// replace deletes an object that has obj's name but other labels, and creates obj. Names of slices
// and records are generated, so no other client creates them. A ServiceImport has the name of a
// Service and may belong to the user, so it is never replaced. If the cache has no such object, the
// error has another cause and is returned.
func (w *Writer) replace(ctx context.Context, obj client.Object, exists error) error {
	if _, isImport := obj.(*mcsv1beta1.ServiceImport); isImport {
		return exists
	}
	old, ok := obj.DeepCopyObject().(client.Object)
	if !ok || w.client.Get(ctx, client.ObjectKeyFromObject(obj), old) != nil || old.GetDeletionTimestamp() != nil ||
		maps.Equal(old.GetLabels(), obj.GetLabels()) {
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

// PatchStatus patches the status of obj for key. obj is then what the server answered.
func (w *Writer) PatchStatus(ctx context.Context, key types.NamespacedName, obj client.Object, patch client.Patch) error {
	if err := w.client.Status().Patch(ctx, obj, patch); err != nil {
		return err
	}
	w.recordWrite(key, VerbStatus, obj)
	return nil
}

// Delete deletes exactly the obj that was read. An object that changed since, or a new one of the
// same name, is kept.
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

// VerbStatus is the verb of a write to the status alone. Clients of a service do not wait for it.
const VerbStatus = "update_status"

func (w *Writer) recordWrite(key types.NamespacedName, verb string, obj client.Object) {
	if w.OnWrite != nil {
		w.OnWrite(key, verb, obj)
	}
	if version := objects.ResourceVersion(obj); version > 0 {
		w.addPending(key, pendingWriteOf(obj, version))
	}
}

func (w *Writer) addPending(key types.NamespacedName, write pendingWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		p = &pendingWrites{}
		w.pending[key] = p
	}
	p.since = time.Now()
	p.writes = append(p.writes, write)
}

// CacheIsCurrent reports whether the cache has observed everything written for key. Until then a
// reconcile would repeat writes. The event of the last such write triggers the next reconcile.
func (w *Writer) CacheIsCurrent(ctx context.Context, key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		return true
	}
	p.writes = slices.DeleteFunc(p.writes, func(write pendingWrite) bool { return w.isObserved(ctx, write) })
	if len(p.writes) > 0 && time.Since(p.since) < CacheTimeout {
		p.awaited = true
		return false
	}
	delete(w.pending, key)
	return true
}

// Own reports whether an event of the cache shows only a write for key, and no reconcile waits for
// it: nothing follows from it then. It must be called once for each event.
func (w *Writer) Own(key types.NamespacedName, obj client.Object, deleted bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		return false
	}
	version := objects.ResourceVersion(obj)
	if deleted {
		version = 0
	}
	at := slices.Index(p.writes, pendingWriteOf(obj, version))
	if at < 0 {
		return false
	}
	p.writes = slices.Delete(p.writes, at, at+1)
	if len(p.writes) > 0 {
		return true // the event of the last one is still to come
	}
	delete(w.pending, key)
	return !p.awaited
}

func (w *Writer) isObserved(ctx context.Context, write pendingWrite) bool {
	observed, ok := reflect.New(write.kind).Interface().(client.Object)
	if !ok {
		return true
	}
	err := w.client.Get(ctx, write.name, observed)
	if write.version == 0 {
		return apierrors.IsNotFound(err) || (err == nil && observed.GetUID() != write.uid)
	}
	// An object that is not in the cache is either not observed yet or deleted since. The former is
	// far more likely, and CacheTimeout bounds the latter.
	return err == nil && objects.ResourceVersion(observed) >= write.version
}

// concurrently makes all writes at once and joins their errors: one failed write must not hide
// another.
func concurrently(writes []func() error) error {
	errs := make([]error, len(writes))
	var group sync.WaitGroup
	for i, write := range writes {
		group.Go(func() { errs[i] = write() })
	}
	group.Wait()
	return errors.Join(errs...)
}
