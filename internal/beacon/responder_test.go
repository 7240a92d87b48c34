package beacon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
)

var (
	eastKey = wire.Key{1, 2, 3}
	east    = wire.NewIdentity("east", eastKey)
)

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func writeIdentity(t *testing.T, folder, id string, key []byte) {
	t.Helper()
	for name, content := range map[string][]byte{wire.ClusterIDFile: []byte(id), wire.KeyFile: key} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens a responder on loopback and runs it. stop ends it and waits until it has ended.
func open(t *testing.T, folder string, change func(*Responder)) (r *Responder, log *lines, stop func()) {
	t.Helper()
	log = &lines{}
	r, err := Open(Options{
		Listen: "127.0.0.1:0", Folder: folder, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return r, log, stop
}

// client is a socket that speaks to a responder.
type client struct {
	*testing.T
	conn net.Conn
}

func dial(t *testing.T, r *Responder) client {
	t.Helper()
	conn, err := net.Dial("udp", r.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return client{t, conn}
}

func (c client) send(datagram []byte) {
	c.Helper()
	if _, err := c.conn.Write(datagram); err != nil {
		c.Fatal(err)
	}
}

// receive returns the next datagram; nil if none comes before the deadline.
func (c client) receive(patience time.Duration) []byte {
	buffer := make([]byte, 1500)
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := c.conn.Read(buffer)
	if err != nil {
		return nil
	}
	return buffer[:n]
}

// answered sends probes until one is answered: a responder that waits for its key drops them.
func (c client) answered(id wire.Identity) {
	c.Helper()
	for i := range 200 {
		nonce := wire.Nonce{byte(i)}
		c.send(id.Probe(nonce))
		if answer := c.receive(100 * time.Millisecond); id.Verify(answer, nonce) {
			return
		}
	}
	c.Fatal("no probe is answered")
}

// A socket of the loopback interface keeps the order of datagrams. So if the first bytes that come
// back answer the probe that was sent last, all that was sent before got no bytes.
func TestStrangersGetNothing(t *testing.T) {
	folder := t.TempDir()
	writeIdentity(t, folder, "east\n", eastKey[:])
	r, log, _ := open(t, folder, nil)
	c := dial(t, r)
	probe := east.Probe(wire.Nonce{1})
	for _, datagram := range [][]byte{
		{}, []byte("GET / HTTP/1.1\r\n\r\n"), probe[:len(probe)-1], append(bytes.Clone(probe), 0), append(bytes.Clone(probe), probe...),
		wire.NewIdentity("east", wire.Key{9}).Probe(wire.Nonce{1}), wire.NewIdentity("west", eastKey).Probe(wire.Nonce{1}),
		bytes.Repeat([]byte{0xff}, 1400),
	} {
		c.send(datagram)
	}
	nonce := wire.Nonce{42}
	c.send(east.Probe(nonce))
	answer := c.receive(10 * time.Second)
	if !east.Verify(answer, nonce) {
		t.Fatalf("the first datagram that came back is %x, want the answer to the probe", answer)
	}
	if len(answer) > len(probe) {
		t.Errorf("%d bytes answer %d", len(answer), len(probe))
	}
	if strings.Contains(log.String(), string(eastKey[:3])) || strings.Contains(log.String(), "[1 2 3") {
		t.Errorf("the key is in the log:\n%s", log)
	}
}

func TestWaitsForItsKeyAndFollowsIt(t *testing.T) {
	folder := t.TempDir()
	r, log, _ := open(t, folder, nil)
	c := dial(t, r)
	c.send(east.Probe(wire.Nonce{1}))
	writeIdentity(t, folder, "east", []byte("too short"))
	r.reread()
	c.send(east.Probe(wire.Nonce{2}))
	writeIdentity(t, folder, "east", eastKey[:])
	c.answered(east)
	other := wire.NewIdentity("east", wire.Key{9})
	writeIdentity(t, folder, "east", (&wire.Key{9})[:])
	c.answered(other)
	// The Secret is gone: the last key holds.
	if err := os.Remove(filepath.Join(folder, wire.KeyFile)); err != nil {
		t.Fatal(err)
	}
	r.reread()
	c.answered(other)
	if strings.Contains(log.String(), "too short") {
		t.Errorf("the content of the key is in the log:\n%s", log)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	folder := t.TempDir()
	writeIdentity(t, folder, "east", eastKey[:])
	const burst = 3
	r, _, stop := open(t, folder, func(r *Responder) { r.answers = rate.NewLimiter(0, burst) })
	c := dial(t, r)
	for i := range 100 {
		c.send(wire.NewIdentity("east", wire.Key{9}).Probe(wire.Nonce{byte(i)})) // strangers do not count
	}
	for i := range 100 {
		c.send(east.Probe(wire.Nonce{byte(i)}))
	}
	got := 0
	for ; got < burst; got++ {
		if c.receive(10*time.Second) == nil {
			t.Fatalf("%d probes answered, want %d", got, burst)
		}
	}
	stop() // all answers that were sent are in the socket's buffer now
	for c.receive(time.Millisecond) != nil {
		got++
	}
	if got != burst {
		t.Errorf("%d probes answered, want %d", got, burst)
	}
}

// A beacon that was told to end answers until it has drained.
func TestDrains(t *testing.T) {
	folder := t.TempDir()
	writeIdentity(t, folder, "east", eastKey[:])
	r, err := Open(Options{Listen: "127.0.0.1:0", Folder: folder, DrainFor: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	dial(t, r).answered(east)
	r.socket.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The process is healthy before it has a key.
func TestHealthNeedsNoKey(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Listen: "127.0.0.1:0", Folder: filepath.Join(t.TempDir(), "absent"), Log: slog.New(slog.DiscardHandler)}, address)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for range 200 {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || string(body) != "ok\n" {
			t.Errorf("%s: %s", response.Status, body)
		}
		return
	}
	t.Fatal("health is not served")
}

// One socket answers in both families, from the address that was probed.
func TestBothFamilies(t *testing.T) {
	folder := t.TempDir()
	writeIdentity(t, folder, "east", eastKey[:])
	r, err := Open(Options{Listen: ":0", Folder: folder, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	_, port, err := net.SplitHostPort(r.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.Dial("udp", net.JoinHostPort(host, port)) // connected: it receives from that address only
		if err != nil {
			t.Fatal(err)
		}
		client{t, conn}.answered(east)
		conn.Close()
	}
}

func TestSocketsInUse(t *testing.T) {
	r, _, _ := open(t, t.TempDir(), nil)
	if _, err := Open(Options{Listen: r.Address().String(), Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("two beacons at one address")
	}
}

// The id of the cluster is reported before the first line of the log that is to name it.
func TestClusterIDIsReported(t *testing.T) {
	folder, log := t.TempDir(), &lines{}
	writeIdentity(t, folder, "east", eastKey[:])
	var reported []string
	r, err := Open(Options{
		Listen: "127.0.0.1:0", Folder: folder, Log: slog.New(slog.NewTextHandler(log, nil)),
		OnClusterID: func(id string) { reported = append(reported, id+log.String()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.socket.Close()
	r.reread()
	if !slices.Equal(reported, []string{"east"}) {
		t.Errorf("reported %q", reported)
	}
}
