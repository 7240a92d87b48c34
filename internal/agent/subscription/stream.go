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

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// pageSize is how many objects of added namespaces are read in one request.
	pageSize = 500
	// settleTime lets namespaces that are created together be added together.
	settleTime = 50 * time.Millisecond
	// retryTime is when namespaces are added that could not be listed.
	retryTime = 2 * time.Second
	// sweepTime is when the objects of namespaces that went are dropped: when the informer has what
	// the watch delivered of them.
	sweepTime = 2 * time.Second
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
	// Namespaces may have changed since the selection was made.
	adjust, sweep := time.NewTimer(0), time.NewTimer(sweepTime)
	defer adjust.Stop()
	defer sweep.Stop()
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
			if s.initial {
				adjust.Reset(settleTime) // the objects of the first list are still coming
				continue
			}
			switch went, err := s.adjust(ctx); {
			case apierrors.IsResourceExpired(err):
				s.send(ctx, watch.Event{Type: watch.Error, Object: expired(err)})
				return
			case err != nil:
				adjust.Reset(retryTime)
			case went:
				sweep.Reset(sweepTime)
			}
		case <-sweep.C:
			if !s.initial && !s.sweep(ctx) {
				return
			}
		}
	}
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
	if s.initial {
		if event.Type == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.initial = false
			s.of.begin(s.of.selection(), version)
		}
		return s.send(ctx, event)
	}
	s.of.mu.Lock()
	isNew := true
	if event.Type == watch.Bookmark {
		s.of.progress.pass(version)
	} else {
		isNew = s.of.progress.observe(obj.GetLabels()[v1alpha1.LabelServiceNamespace], version)
	}
	s.of.mu.Unlock()
	return !isNew || s.send(ctx, event)
}

// adjust makes the watch follow the namespaces, and reports whether some of them went. Its error is
// ResourceExpired if everything must be listed again.
func (s *stream) adjust(ctx context.Context) (went bool, err error) {
	want, _ := s.of.namespaces.selection()
	have := s.of.selection()
	if want.everything && have.everything {
		return false, nil
	}
	if want.everything != have.everything {
		return false, apierrors.NewResourceExpired("the number of namespaces passed a limit")
	}
	added, gone := want.minus(have), have.minus(want)
	if len(added.names)+len(gone.names) == 0 {
		return false, nil
	}
	s.of.mu.Lock()
	next := s.of.progress
	s.of.mu.Unlock()
	var objects []runtime.Object
	if len(added.names) > 0 {
		var version int64
		if objects, version, err = s.of.listAdded(PartialList(ctx), added); err != nil {
			return false, err
		}
		next = next.add(added, version)
	}
	opts := s.opts
	opts.LabelSelector, opts.ResourceVersion = want.LabelSelector(), strconv.FormatInt(next.seen, 10)
	main, err := s.of.inner.WatchWithContext(ctx, opts)
	if err != nil {
		return false, err
	}
	s.main.Stop()
	s.main = main
	s.of.mu.Lock()
	s.of.selected, s.of.progress = want, next
	s.of.mu.Unlock()
	for _, obj := range objects {
		if !s.send(ctx, watch.Event{Type: watch.Added, Object: obj}) {
			return false, nil
		}
	}
	return len(gone.names) > 0, nil
}

// sweep drops the objects of namespaces that are not selected.
func (s *stream) sweep(ctx context.Context) bool {
	selected := s.of.selection()
	for _, held := range s.of.held() {
		obj, ok := held.(client.Object)
		if !ok || selected.contains(obj.GetLabels()[v1alpha1.LabelServiceNamespace]) {
			continue
		}
		// A copy: the informer transforms it, and others read the one that it holds.
		if !s.send(ctx, watch.Event{Type: watch.Deleted, Object: obj.DeepCopyObject()}) {
			return false
		}
	}
	return true
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
