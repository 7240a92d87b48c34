package subscription

import (
	"context"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is how many objects of added namespaces are read in one request.
	pageSize = 500
	// settleTime lets namespaces that are created together be added together.
	settleTime = 50 * time.Millisecond
	// retryTime is when namespaces are added that could not be listed.
	retryTime = 2 * time.Second
	// sweepTime is how often it is tried to drop the objects of namespaces that went: the informer may
	// not have what it was sent of them yet.
	sweepTime = 200 * time.Millisecond
)

// stream is a watch whose selection follows the namespaces.
type stream struct {
	of      *ListWatch
	opts    metav1.ListOptions
	main    watch.Interface
	initial bool // the events are those of the first list
	result  chan watch.Event
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

func newStream(ctx context.Context, of *ListWatch, main watch.Interface, opts metav1.ListOptions, initial bool) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{of: of, opts: opts, main: main, initial: initial, result: make(chan watch.Event), stop: cancel}
	s.ended.Go(func() {
		defer close(s.result)
		defer func() { s.main.Stop() }()
		s.run(ctx)
	})
	return s
}

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop()
	s.ended.Wait()
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

func (s *stream) run(ctx context.Context) {
	adjust := time.NewTimer(0) // namespaces may have changed since the selection was made
	defer adjust.Stop()
	_, changed := s.of.namespaces.selection()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-s.main.ResultChan():
			if !ok || !s.forward(ctx, event) {
				return
			}
		case <-changed:
			_, changed = s.of.namespaces.selection()
			adjust.Reset(settleTime)
		case <-adjust.C:
			again, err := s.follow(ctx)
			switch {
			case apierrors.IsResourceExpired(err):
				s.send(ctx, watch.Event{Type: watch.Error, Object: expired(err)})
				return
			case err != nil:
				adjust.Reset(retryTime)
			case again > 0:
				adjust.Reset(again)
			}
		}
	}
}

// follow makes the watch and the informer follow the namespaces. It returns when it is to be called
// again, 0 if it is done. Its error is ResourceExpired if everything must be listed again.
func (s *stream) follow(ctx context.Context) (again time.Duration, err error) {
	if s.initial {
		return settleTime, nil // the objects of the first list are still coming
	}
	if err := s.adjust(ctx); err != nil {
		return 0, err
	}
	if s.sweep(ctx) {
		return 0, nil
	}
	return sweepTime, nil
}

// forward passes an event on, if it is new. It reports false if the watch has ended.
func (s *stream) forward(ctx context.Context, event watch.Event) bool {
	if event.Type == watch.Error {
		return s.send(ctx, event)
	}
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return s.send(ctx, event)
	}
	version, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return s.send(ctx, event)
	}
	if event.Type == watch.Bookmark {
		if s.initial = s.initial && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"; !s.initial {
			s.of.pass(version)
		}
		return s.send(ctx, event)
	}
	isNew := s.initial || s.of.observe(obj, version)
	if !isNew || !s.of.selection().containsObject(obj) {
		return true
	}
	return s.of.note(event.Type, event.Object) == nil && s.send(ctx, event)
}

// adjust makes the watch select the namespaces of now. A namespace that went and came back waits
// until what the informer has of it is dropped: meanwhile some of it may have been deleted.
func (s *stream) adjust(ctx context.Context) error {
	want, _ := s.of.namespaces.selection()
	have := s.of.selection()
	if want.everything {
		return nil // it always was
	}
	added, gone := want.minus(have).minus(s.of.unselected()), have.minus(want)
	if len(added.names)+len(gone.names) == 0 {
		return nil
	}
	next, objects, err := s.of.listAdded(PartialList(ctx), added)
	if err != nil {
		return err
	}
	selected := have.minus(gone).plus(added)
	opts := s.opts
	opts.LabelSelector, opts.ResourceVersion = selected.LabelSelector(), strconv.FormatInt(next.seen, 10)
	main, err := s.of.inner.WatchWithContext(ctx, opts)
	if err != nil {
		return err
	}
	s.main.Stop()
	s.main = main
	s.of.mu.Lock()
	s.of.selected, s.of.progress = selected, next
	s.of.mu.Unlock()
	for _, obj := range objects {
		if err := s.of.note(watch.Added, obj); err != nil {
			return err
		}
		if !s.send(ctx, watch.Event{Type: watch.Added, Object: obj}) {
			return nil
		}
	}
	return nil
}

// sweep drops the objects of namespaces that are not selected. It reports whether it could drop all
// of them, and the namespaces are as wanted then.
func (s *stream) sweep(ctx context.Context) (done bool) {
	unselected := s.of.unselected()
	if len(unselected.names) == 0 {
		return true
	}
	for _, key := range s.of.keysOf(unselected) {
		held, exists, err := s.of.held(key)
		obj, ok := held.(client.Object)
		if err != nil || !exists || !ok {
			continue
		}
		// A copy: the informer transforms it, and others read the one that it holds.
		obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the same type
		if s.of.note(watch.Deleted, obj) != nil || !s.send(ctx, watch.Event{Type: watch.Deleted, Object: obj}) {
			return true
		}
	}
	return false // namespaces that came back are added now
}

// send reports false if the watch has ended.
func (s *stream) send(ctx context.Context, event watch.Event) bool {
	select {
	case s.result <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

type partialList struct{}

// PartialList returns a context for requests that list some of the objects of a kind.
func PartialList(ctx context.Context) context.Context {
	return context.WithValue(ctx, partialList{}, true)
}

// IsPartialList reports whether a request lists only some of the objects of a kind, so that it does
// not count as the list of a watch.
func IsPartialList(ctx context.Context) bool { return ctx.Value(partialList{}) != nil }

func expired(err error) runtime.Object {
	status := apierrors.NewResourceExpired(err.Error()).Status()
	return &status
}
