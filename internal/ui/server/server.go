// Package server serves the page: its assets, the state as JSON, and the differences as server-sent
// events. It listens on the loopback interface only, and answers GET and HEAD only.
package server

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/ui/page"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

// apiPath is the beginning of all paths that return data.
const apiPath = "/api/"

// Options of a server.
type Options struct {
	Hub   *Hub
	Token string
	// Explain explains a service from what is known now; ok is false if nothing is.
	Explain func(ctx context.Context, service types.NamespacedName) (report explain.Report, ok bool)
	// Viewed is called when a viewer looks at a service; it may be nil.
	Viewed func(service types.NamespacedName)
	// Live reports whether the page follows a clusterset, and does not show a file.
	Live bool
	// Clean removes secrets from texts that are saved.
	Clean func(string) string
}

// Server serves the page.
type Server struct {
	Options
	http *http.Server
	// streams ends when the server shuts down: open streams would keep it running.
	streams context.Context
	stop    context.CancelFunc
}

// Times of a server.
const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 10 * time.Second
	// aliveEvery is how often a stream says that it is alive, with what changes all the time.
	aliveEvery = 5 * time.Second
)

// New returns a server.
func New(o Options) *Server {
	s := &Server{Options: o}
	s.streams, s.stop = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/services", http.StatusFound) })
	for _, view := range []string{"/services", "/clusters", "/service/{namespace}/{name}"} {
		mux.HandleFunc(view, func(w http.ResponseWriter, _ *http.Request) { s.asset(w, page.Index) })
	}
	mux.HandleFunc("/assets/{file}", func(w http.ResponseWriter, r *http.Request) { s.asset(w, r.PathValue("file")) })
	mux.HandleFunc(apiPath+"state", s.state)
	mux.HandleFunc(apiPath+"timeline", s.timeline)
	mux.HandleFunc(apiPath+"service", s.service)
	mux.HandleFunc(apiPath+"stream", s.stream)
	mux.HandleFunc(apiPath+"save", s.save)
	s.http = &http.Server{Handler: guard(o.Token, mux), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: 16 << 10}
	return s
}

// Handler returns the handler of all requests, with all checks.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(l) }()
	select {
	case err := <-ended:
		s.stop()
		return err
	case <-ctx.Done():
	}
	s.stop()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := s.http.Shutdown(closing); err != nil {
		return fmt.Errorf("stop the page: %w", err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Listen listens on the loopback interface: at a port, or at any other if that is taken and fixed
// is false.
func Listen(ctx context.Context, port int, fixed bool) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil || fixed {
		if err != nil {
			return nil, fmt.Errorf("the page cannot listen: %w (choose another --port)", err)
		}
		return l, nil
	}
	return config.Listen(ctx, "tcp", "127.0.0.1:0")
}

// Address returns the address to open in a browser. The token is in its fragment, which browsers do
// not send.
func Address(l net.Listener, token string) string {
	return fmt.Sprintf("http://%s/services#token=%s", l.Addr(), token)
}

func (s *Server) asset(w http.ResponseWriter, name string) {
	content, err := page.Files.ReadFile(name)
	if err != nil {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(content) // the client is gone
}

// state returns a snapshot: the newest, or that of a moment.
func (s *Server) state(w http.ResponseWriter, r *http.Request) {
	seq, ok := sequence(w, r)
	if !ok {
		return
	}
	content, ok, err := s.Hub.snapshotJSON(seq, s.Live)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !ok {
		http.Error(w, "the page does not remember that moment any more", http.StatusGone)
		return
	}
	writeJSON(w, r, content)
}

// sequence returns the number of the snapshot that a request is about; -1 for the newest.
func sequence(w http.ResponseWriter, r *http.Request) (seq int64, ok bool) {
	text := r.URL.Query().Get("at")
	if text == "" {
		return -1, true
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		http.Error(w, "at is not the number of a moment", http.StatusBadRequest)
		return 0, false
	}
	return seq, true
}

func (s *Server) timeline(w http.ResponseWriter, r *http.Request) { encode(w, r, s.Hub.entries()) }

// service explains one service.
func (s *Server) service(w http.ResponseWriter, r *http.Request) {
	namespace, name, found := strings.Cut(r.URL.Query().Get("name"), "/")
	if !found || namespace == "" || name == "" {
		http.Error(w, "name must be NAMESPACE/NAME", http.StatusBadRequest)
		return
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if s.Viewed != nil {
		s.Viewed(key)
	}
	report, ok := s.Explain(r.Context(), key)
	if !ok {
		http.Error(w, "nothing is known about this service", http.StatusNotFound)
		return
	}
	encode(w, r, report)
}

// maxReports is how many services a saved file explains in full if some have no trouble.
const maxReports = 500

// save returns the file of the page.
func (s *Server) save(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UTC()
	file := &state.File{Version: version.String(), SavedAt: now, History: s.Hub.copyHistory(), Reports: map[string]explain.Report{}}
	rows := file.History.Now().Rows
	for _, row := range rows {
		if len(rows) > maxReports && (row.Verdict == state.OK || len(file.Reports) >= maxReports) {
			continue
		}
		namespace, name, _ := strings.Cut(row.Name, "/")
		if report, ok := s.Explain(r.Context(), types.NamespacedName{Namespace: namespace, Name: name}); ok {
			file.Reports[row.Name] = report
		}
	}
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", "attachment; filename=seamark-"+now.Format("20060102-150405")+".ui.gz")
	_ = file.Write(w, s.Clean) // the client is gone
}

// stream sends differences as they come.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		http.Error(w, "Last-Event-ID must be the number of the last snapshot", http.StatusBadRequest)
		return
	}
	v := s.Hub.subscribe(last)
	defer s.Hub.unsubscribe(v)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(message []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // the write fails if that is not possible
		_, err := w.Write(message)
		return err == nil && out.Flush() == nil
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for ok := send([]byte("retry: 1000\n\n")); ok; {
		select {
		case <-r.Context().Done():
			return
		case <-s.streams.Done():
			return
		case message, open := <-v.messages:
			ok = open && send(message)
		case <-alive.C:
			ok = send(s.beat())
		}
	}
}

// beat returns a message with what changes all the time: heartbeats and latencies.
func (s *Server) beat() []byte {
	now := s.Hub.now()
	heartbeats := map[string]*time.Time{}
	for i := range now.Clusters {
		heartbeats[now.Clusters[i].ID] = now.Clusters[i].LastHeartbeat
	}
	content, err := json.Marshal(map[string]any{"at": time.Now().UTC(), "heartbeats": heartbeats})
	if err != nil {
		return []byte(": alive\n\n")
	}
	return fmt.Appendf(nil, "event: beat\ndata: %s\n\n", content)
}

func encode(w http.ResponseWriter, r *http.Request, value any) {
	content, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, r, content)
}

// writeJSON writes JSON, compressed if the client can read that: the matrix of a large clusterset
// becomes twenty times smaller.
func writeJSON(w http.ResponseWriter, r *http.Request, content []byte) {
	w.Header().Set("Content-Type", "application/json")
	const worthwhile = 4 << 10
	if len(content) < worthwhile || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(content) // the client is gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return // the level is valid
	}
	_, _ = zip.Write(content)
	_ = zip.Close()
}
