package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

const token = "0123456789ABCDEF0123456789"

func snapshot(seq int64, cells string) *state.Snapshot {
	return &state.Snapshot{
		Seq: seq, ClusterSet: "prod", Clusters: []state.Cluster{{Member: status.Member{ID: "east"}}},
		Rows: []*state.Row{{Name: "shop/web", Cells: cells, Sends: "A", Verdict: state.OK}},
	}
}

// served returns a server with a state, and the hub behind it.
func served(t *testing.T) (*httptest.Server, *Hub, *Server) {
	t.Helper()
	hub := NewHub(state.NewHistory(snapshot(1, "E")))
	s := New(Options{
		Hub: hub, Token: token, Live: true, Clean: func(text string) string { return strings.ReplaceAll(text, "secret", "(removed)") },
		Explain: func(_ context.Context, key types.NamespacedName) (explain.Report, bool) {
			return explain.Report{Namespace: key.Namespace, Name: key.Name, DNSName: "secret"}, key.Name == "web"
		},
	})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(s.stop)
	return server, hub, s
}

func publish(hub *Hub, seq int64, cells string) {
	before := hub.now()
	after := snapshot(seq, cells)
	hub.Publish(state.Diff(before, after), after)
}

// reply is a response whose body is closed at the end of the test.
type reply struct{ *http.Response }

// request sends a request with the token, after change has changed it.
func request(t *testing.T, method, url string, change func(*http.Request)) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if change != nil {
		change(req)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() }) // it was read, or does not matter
	return reply{resp}
}

func body(t *testing.T, resp reply) string {
	t.Helper()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var paths = []string{"/", "/services", "/clusters", "/service/shop/web", "/assets/app.js", "/api/state", "/api/timeline",
	"/api/service?name=shop/web",
	"/api/stream", "/api/save", "/nothing"}

// A site whose name was made to point to this machine sends that name as the Host. It gets nothing,
// not even an asset.
func TestOtherHostsAreRefused(t *testing.T) {
	server, _, _ := served(t)
	for _, path := range paths {
		for _, host := range []string{"attacker.example", "attacker.example:80", "localhost.attacker.example", "127.0.0.1.attacker.example", "",
			"10.0.0.1",
			"0.0.0.0", "[::]", "localhost@attacker.example", "127.0.0.1:80:80", "[fe80::1%lo]", "2130706433"} {
			resp := request(t, http.MethodGet, server.URL+path, func(r *http.Request) {
				r.Host = host
				if host == "" {
					r.Host = "%"
				}
			})
			if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with Host %q: %s", path, host, resp.Status)
			}
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.0.0.2", "[::1]:8080", "[::1]"} {
		if resp := request(t, http.MethodGet, server.URL+"/api/state", func(r *http.Request) { r.Host = host }); resp.StatusCode != http.StatusOK {
			t.Errorf("Host %s: %s", host, resp.Status)
		}
	}
}

func TestDataNeedsTheToken(t *testing.T) {
	server, _, _ := served(t)
	for _, path := range paths {
		if !strings.HasPrefix(path, apiPath) {
			continue
		}
		for _, header := range []string{"", "Bearer", "Bearer ", "Bearer x", "Bearer " + token + "x", "Bearer " + token[1:],
			"Basic " + token, token} {
			resp := request(t, http.MethodGet, server.URL+path, func(r *http.Request) { r.Header.Set("Authorization", header) })
			if resp.StatusCode != http.StatusUnauthorized || strings.Contains(body(t, resp), "shop") {
				t.Errorf("%s with %q: %s", path, header, resp.Status)
			}
		}
		// Neither a cookie nor the address carries it: other pages could make a browser send them.
		resp := request(t, http.MethodGet, server.URL+path, func(r *http.Request) {
			r.Header.Del("Authorization")
			r.AddCookie(&http.Cookie{Name: "token", Value: token})
			r.URL.RawQuery = "token=" + token
		})
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s with a cookie: %s", path, resp.Status)
		}
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) < 26 {
		t.Errorf("tokens %s and %s", a, b)
	}
}

func TestOnlyReading(t *testing.T) {
	server, _, _ := served(t)
	for _, path := range paths {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "TRACE", "X"} {
			resp := request(t, method, server.URL+path, nil)
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %s", method, path, resp.Status)
			}
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	server, _, _ := served(t)
	for site, want := range map[string]int{
		"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK, "none": http.StatusOK, "": http.StatusOK,
	} {
		resp := request(t, http.MethodGet, server.URL+"/api/state", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		if resp.StatusCode != want {
			t.Errorf("Sec-Fetch-Site %q: %s", site, resp.Status)
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("another origin may read the answer")
		}
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	server, _, _ := served(t)
	for _, path := range paths {
		for _, host := range []string{"localhost", "attacker.example"} {
			resp := request(t, http.MethodHead, server.URL+path, func(r *http.Request) { r.Host = host; r.Header.Set("Last-Event-ID", "x") })
			csp := resp.Header.Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
				if !strings.Contains(csp, part) {
					t.Errorf("%s: the policy lacks %s: %s", path, part, csp)
				}
			}
			if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
				t.Errorf("%s: %s", path, csp)
			}
			if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" ||
				resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v", path, resp.Header)
			}
			if len(resp.Cookies()) > 0 {
				t.Errorf("%s sets a cookie", path)
			}
		}
	}
}

func TestAssetsStayInsideThePage(t *testing.T) {
	server, _, _ := served(t)
	for _, path := range []string{"/assets/../server.go", "/assets/%2e%2e/server.go", "/assets/page.go", "/assets/..%2fserver.go", "/assets/",
		"/etc/passwd"} {
		if resp := request(t, http.MethodGet, server.URL+path, nil); resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for path, kind := range map[string]string{"/services": "text/html", "/assets/app.js": "text/javascript", "/assets/style.css": "text/css"} {
		resp := request(t, http.MethodGet, server.URL+path, nil)
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	l, err := Listen(t.Context(), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		t.Fatalf("listens on %s", l.Addr())
	}
	if _, err := Listen(t.Context(), addr.Port, true); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("a port that is taken: %v", err)
	}
	other, err := Listen(t.Context(), addr.Port, false)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if got := Address(l, "x"); got != fmt.Sprintf("http://%s/services#token=x", l.Addr()) {
		t.Errorf("%s", got)
	}
}

func TestStateOfAMoment(t *testing.T) {
	server, hub, _ := served(t)
	publish(hub, 2, "M")
	for query, want := range map[string]string{"": `"c":"M"`, "?at=2": `"c":"M"`, "?at=1": `"c":"E"`} {
		if resp := request(t, http.MethodGet, server.URL+"/api/state"+query, nil); !strings.Contains(body(t, resp), want) {
			t.Errorf("state%s has no %s", query, want)
		}
	}
	for query, want := range map[string]int{"?at=0": http.StatusGone, "?at=x": http.StatusBadRequest, "?at=-1": http.StatusBadRequest} {
		if resp := request(t, http.MethodGet, server.URL+"/api/state"+query, nil); resp.StatusCode != want {
			t.Errorf("state%s: %s", query, resp.Status)
		}
	}
}

func TestService(t *testing.T) {
	server, _, _ := served(t)
	for query, want := range map[string]int{
		"?name=shop/web": http.StatusOK, "?name=shop/db": http.StatusNotFound, "": http.StatusBadRequest,
		"?name=shop": http.StatusBadRequest, "?name=/": http.StatusBadRequest,
	} {
		if resp := request(t, http.MethodGet, server.URL+"/api/service"+query, nil); resp.StatusCode != want {
			t.Errorf("service%s: %s", query, resp.Status)
		}
	}
}

// stream opens a stream and returns its messages.
func stream(t *testing.T, server *httptest.Server, last string) *bufio.Scanner {
	t.Helper()
	resp := request(t, http.MethodGet, server.URL+"/api/stream", func(r *http.Request) { r.Header.Set("Last-Event-ID", last) })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s", resp.Status)
	}
	return bufio.NewScanner(resp.Body)
}

// next returns the next line of a stream with a prefix.
func next(t *testing.T, lines *bufio.Scanner, prefix string) string {
	t.Helper()
	for lines.Scan() {
		if text, found := strings.CutPrefix(lines.Text(), prefix); found {
			return text
		}
	}
	t.Fatalf("the stream ended before %s: %v", prefix, lines.Err())
	return ""
}

func TestStream(t *testing.T) {
	server, hub, _ := served(t)
	publish(hub, 2, "M")
	lines := stream(t, server, "1")
	if got := next(t, lines, "id: "); got != "2" {
		t.Errorf("what was missed comes first: %s", got)
	}
	publish(hub, 3, "I")
	if got := next(t, lines, "id: "); got != "3" {
		t.Errorf("%s", got)
	}
	var d state.Delta
	if err := json.Unmarshal([]byte(next(t, lines, "data: ")), &d); err != nil || len(d.Rows) != 1 || d.Rows[0].Cells != "I" {
		t.Errorf("%v %+v", err, d)
	}
	for _, last := range []string{"0", "99"} { // forgotten, and of another server
		if got := next(t, stream(t, server, last), "event: "); got != "reset" {
			t.Errorf("after %s: %s", last, got)
		}
	}
	if resp := request(t, http.MethodGet, server.URL+"/api/stream", nil); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a number: %s", resp.Status)
	}
}

// A viewer that does not read is dropped, and holds up neither the others nor the engine.
func TestSlowViewer(t *testing.T) {
	_, hub, _ := served(t)
	slow := hub.subscribe(1)
	for seq := int64(2); seq < maxBehind+10; seq++ {
		publish(hub, seq, string(rune('E'+seq%2)))
	}
	if len(hub.viewers) != 0 {
		t.Error("the viewer is kept")
	}
	hub.unsubscribe(slow)
}

// Open streams do not keep the server from ending.
func TestShutdownEndsStreams(t *testing.T) {
	_, _, s := served(t)
	l, err := Listen(t.Context(), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	lines := stream(t, &httptest.Server{URL: "http://" + l.Addr().String()}, "1")
	next(t, lines, "retry: ")
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(writeTimeout / 2):
		t.Error("the server does not end")
	}
}

func TestSave(t *testing.T) {
	server, _, _ := served(t)
	resp := request(t, http.MethodGet, server.URL+"/api/save", nil)
	if !strings.HasSuffix(resp.Header.Get("Content-Disposition"), ".ui.gz") {
		t.Errorf("%v", resp.Header)
	}
	content := body(t, resp)
	file, err := state.ReadFile(strings.NewReader(content))
	if err != nil || file.History.Now().Row("shop/web") == nil || file.Reports["shop/web"].DNSName != "(removed)" {
		t.Errorf("%v %+v", err, file)
	}
	zip, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil || bytes.Contains(plain, []byte("secret")) || bytes.Contains(plain, []byte(token)) {
		t.Errorf("%v: a secret is in the file", err)
	}
}
