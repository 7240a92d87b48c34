package memapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is the body of the answer to one watch. The server appends to it, the client reads.
type watcher struct {
	ctx      context.Context //nolint:containedctx // that of the request: a read ends with it
	kind     kind
	selected selection
	remove   func(*watcher)

	mu      sync.Mutex
	pending []byte
	more    chan struct{} // has an element when something is pending
}

// watch answers a watch: with the objects there are if the client asks for them, then with changes.
// It ends after the time that the client names, as an API server does.
func (s *Server) watch(req *http.Request, k kind, selected selection, query url.Values) *http.Response {
	ctx := req.Context()
	cancel := context.CancelFunc(func() {})
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collection(k.resource)
	w := &watcher{ctx: ctx, kind: k, selected: selected, more: make(chan struct{}, 1)}
	w.remove = func(w *watcher) {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(c.watchers, w)
	}
	since, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	withObjects, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	if withObjects || since == 0 {
		for _, obj := range c.sorted(selected) {
			w.send(watch.Added, obj.text)
		}
		if withObjects {
			w.bookmark(s.version)
		}
	} else {
		if !c.remembers(since) {
			cancel()
			f := fail(http.StatusGone, metav1.StatusReasonExpired, "the resource version is too old", k, "")
			return respond(req, f.code, f.text())
		}
		for _, e := range c.events {
			if e.version > since {
				w.observe(e)
			}
		}
	}
	c.watchers[w] = struct{}{}
	resp := respond(req, http.StatusOK, nil)
	resp.Body, resp.ContentLength = w, -1
	return resp
}

// remembers reports whether all changes after a version are still known.
func (c *collection) remembers(version int64) bool {
	return len(c.events) < keptEvents || c.events[0].version <= version+1
}

// observe sends a change as the selection makes it look.
func (w *watcher) observe(e event) {
	was, is := w.selected.matches(e.before), w.selected.matches(e.after)
	switch {
	case !was && is:
		w.send(watch.Added, e.after.text)
	case was && is:
		w.send(watch.Modified, e.after.text)
	case was:
		w.send(watch.Deleted, e.before.text)
	}
}

// bookmark says that all objects have been sent, as of a version.
func (w *watcher) bookmark(version int64) {
	w.send(watch.Bookmark, fmt.Appendf(nil,
		`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}`,
		w.kind.name, w.kind.apiVersion(), version, metav1.InitialEventsAnnotationKey))
}

func (w *watcher) send(what watch.EventType, object []byte) {
	w.mu.Lock()
	w.pending = fmt.Appendf(w.pending, `{"type":%q,"object":%s}`+"\n", what, object)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Read implements io.Reader. It waits for a change.
func (w *watcher) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		n := copy(p, w.pending)
		w.pending = w.pending[n:]
		if len(w.pending) == 0 {
			w.pending = nil // a burst must not keep its memory
		}
		w.mu.Unlock()
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		select {
		case <-w.ctx.Done():
			return 0, io.EOF
		case <-w.more:
		}
	}
}

// Close implements io.Closer.
func (w *watcher) Close() error {
	w.remove(w)
	return nil
}
