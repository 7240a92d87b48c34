package subscription

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// ListWatch lists and watches the objects of one kind that belong to services of some namespaces.
// When a namespace is added, it lists only that one's objects, and goes on with the watch of all
// from where it was.
type ListWatch struct {
	inner      toolscache.ListerWatcherWithContext
	namespaces *Namespaces
	// held returns the objects of the informer.
	held func() []any

	mu       sync.Mutex
	listing  Selection // of the list that is being read in pages
	selected Selection // of what the informer has
	progress progress
}

var (
	_ toolscache.ListerWatcher            = (*ListWatch)(nil)
	_ toolscache.ListerWatcherWithContext = (*ListWatch)(nil)
)

// NewInformer returns an informer of the objects that lw lists, limited to the services of these
// namespaces.
func NewInformer(
	lw toolscache.ListerWatcher, namespaces *Namespaces, informer func(toolscache.ListerWatcher) toolscache.SharedIndexInformer,
) toolscache.SharedIndexInformer {
	limited := &ListWatch{inner: toolscache.ToListerWatcherWithContext(lw), namespaces: namespaces}
	out := informer(limited)
	limited.held = out.GetIndexer().List
	return out
}

// List implements toolscache.Lister.
func (l *ListWatch) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

// Watch implements toolscache.Watcher.
func (l *ListWatch) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

// ListWithContext implements toolscache.ListerWithContext. All pages of a list have the selection
// of the first.
func (l *ListWatch) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := l.namespaces.await(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if opts.Continue == "" {
		l.listing, _ = l.namespaces.selection()
	}
	selection := l.listing
	l.mu.Unlock()
	opts.LabelSelector = selection.LabelSelector()
	list, err := l.inner.ListWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	version, next, err := versionOf(list)
	if err != nil {
		return nil, err
	}
	if next == "" {
		l.begin(selection, version)
	}
	return list, nil
}

// WatchWithContext implements toolscache.WatcherWithContext. A watch that begins with all objects
// has the selection of now. One that resumes has that of what the informer has; it begins where the
// last one was, which opts does not say: objects of an added namespace have older versions.
func (l *ListWatch) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := l.namespaces.await(ctx); err != nil {
		return nil, err
	}
	initial := ptr.Deref(opts.SendInitialEvents, false)
	if initial {
		selection, _ := l.namespaces.selection()
		l.begin(selection, 0)
	} else {
		opts.ResourceVersion = l.resumeAt()
	}
	opts.LabelSelector = l.selection().LabelSelector()
	main, err := l.inner.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	opts.SendInitialEvents, opts.ResourceVersionMatch = nil, ""
	return newStream(ctx, l, main, opts, initial), nil
}

// begin is called when everything of a selection has been or is being read anew.
func (l *ListWatch) begin(selection Selection, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.selected, l.progress = selection, progress{seen: version}
}

func (l *ListWatch) selection() Selection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.selected
}

func (l *ListWatch) resumeAt() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strconv.FormatInt(l.progress.seen, 10)
}

// listAdded lists the objects of added namespaces. The list is read in pages.
func (l *ListWatch) listAdded(ctx context.Context, added Selection) (objects []runtime.Object, version int64, err error) {
	opts := metav1.ListOptions{LabelSelector: added.LabelSelector(), Limit: pageSize}
	for {
		list, err := l.inner.ListWithContext(ctx, opts)
		if err != nil {
			return nil, 0, err
		}
		page, err := meta.ExtractList(list)
		if err != nil {
			return nil, 0, fmt.Errorf("read a list of the broker: %w", err)
		}
		objects = append(objects, page...)
		if version, opts.Continue, err = versionOf(list); err != nil || opts.Continue == "" {
			return objects, version, err
		}
	}
}

// versionOf returns the resource version of a list, and what the request of its next page has.
func versionOf(list runtime.Object) (version int64, next string, err error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, "", fmt.Errorf("read a list of the broker: %w", err)
	}
	version, err = strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("a list of the broker has the resource version %q, which is no number", m.GetResourceVersion())
	}
	return version, m.GetContinue(), nil
}
