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

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// ListWatch lists and watches the objects of one kind that belong to services of some namespaces.
// When a namespace is added, it lists only that one's objects, and goes on with the watch of all
// from where it was.
type ListWatch struct {
	inner      toolscache.ListerWatcherWithContext
	namespaces *Namespaces
	// brokerNamespace is the namespace of all objects.
	brokerNamespace string
	// held returns an object of the informer.
	held func(key string) (obj any, exists bool, err error)

	mu       sync.Mutex
	listing  Selection // of the list that is being read in pages
	selected Selection // of what the watch delivers
	progress progress
	sent     keys // of all objects that the informer was sent, unless everything is selected
}

// keys are keys of objects, by the namespaces of their services.
type keys map[string]map[string]struct{}

func (k keys) add(obj metav1.Object) {
	namespace := obj.GetLabels()[v1alpha1.LabelServiceNamespace]
	if k[namespace] == nil {
		k[namespace] = map[string]struct{}{}
	}
	k[namespace][obj.GetName()] = struct{}{}
}

func (k keys) remove(obj metav1.Object) {
	namespace := obj.GetLabels()[v1alpha1.LabelServiceNamespace]
	if delete(k[namespace], obj.GetName()); len(k[namespace]) == 0 {
		delete(k, namespace)
	}
}

var (
	_ toolscache.ListerWatcher            = (*ListWatch)(nil)
	_ toolscache.ListerWatcherWithContext = (*ListWatch)(nil)
)

// NewInformer returns an informer of the objects that lw lists, limited to the services of these
// namespaces.
func NewInformer(
	lw toolscache.ListerWatcher, brokerNamespace string, namespaces *Namespaces,
	informer func(toolscache.ListerWatcher) toolscache.SharedIndexInformer,
) toolscache.SharedIndexInformer {
	limited := &ListWatch{inner: toolscache.ToListerWatcherWithContext(lw), brokerNamespace: brokerNamespace, namespaces: namespaces}
	out := informer(limited)
	limited.held = out.GetIndexer().GetByKey
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
	version, _, err := versionOf(list)
	if err != nil {
		return nil, err
	}
	if opts.Continue == "" {
		l.begin(selection, version)
	}
	found, err := selectItems(list, selection)
	if err != nil {
		return nil, err
	}
	for _, obj := range found {
		if err := l.note(watch.Added, obj); err != nil {
			return nil, err
		}
	}
	if selection.tooMany {
		err = meta.SetList(list, found)
	}
	return list, err
}

// selectItems returns the items of a list that belong to a selection.
func selectItems(list runtime.Object, selection Selection) (found []runtime.Object, err error) {
	all, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read a list of the broker: %w", err)
	}
	for _, obj := range all {
		if m, err := meta.Accessor(obj); err != nil || selection.containsObject(m) {
			found = append(found, obj)
		}
	}
	return found, nil
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
	l.selected, l.progress, l.sent = selection, progress{seen: version}, keys{}
}

// note records that an object is sent to the informer.
func (l *ListWatch) note(event watch.EventType, obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.selected.everything:
	case event == watch.Deleted:
		l.sent.remove(m)
	default:
		l.sent.add(m)
	}
	return nil
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

// observe records an event of the watch, and reports whether it is new to the informer.
func (l *ListWatch) observe(obj metav1.Object, version int64) (isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.observe(obj.GetLabels()[v1alpha1.LabelServiceNamespace], version)
}

// pass records that the watch has delivered everything up to a version.
func (l *ListWatch) pass(version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress.pass(version)
}

// unselected returns the namespaces of which the informer has objects although they are not
// selected.
func (l *ListWatch) unselected() Selection {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Selection{names: map[string]struct{}{}}
	for namespace := range l.sent {
		if !l.selected.contains(namespace) {
			out.names[namespace] = struct{}{}
		}
	}
	return out
}

// keysOf returns the keys of what the informer has of some namespaces.
func (l *ListWatch) keysOf(namespaces Selection) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for namespace := range namespaces.names {
		for name := range l.sent[namespace] {
			keys = append(keys, l.brokerNamespace+"/"+name)
		}
	}
	return keys
}

// listAdded lists the objects of added namespaces, in pages. It returns the progress of a watch
// that selects them too.
func (l *ListWatch) listAdded(ctx context.Context, added Selection) (next progress, objects []runtime.Object, err error) {
	l.mu.Lock()
	next = l.progress
	l.mu.Unlock()
	if len(added.names) == 0 {
		return next, nil, nil
	}
	opts := metav1.ListOptions{LabelSelector: added.LabelSelector(), Limit: pageSize}
	for {
		list, err := l.inner.ListWithContext(ctx, opts)
		if err != nil {
			return next, nil, err
		}
		page, err := selectItems(list, added)
		if err != nil {
			return next, nil, err
		}
		objects = append(objects, page...)
		var version int64
		if version, opts.Continue, err = versionOf(list); err != nil {
			return next, nil, err
		}
		if opts.Continue == "" {
			return next.add(added, version), objects, nil
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
