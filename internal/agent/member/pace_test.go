package member

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// The bound doubles from round to round until the server is slow. It is halved once for all writes
// that were on their way, never below one, and then grows by one from round to round. A member that
// has sent nothing for a while begins anew.
func TestPaceFollowsTheServer(t *testing.T) {
	p := &pace{}
	write := func(n int, overloaded bool) {
		t.Helper()
		begun := make([]time.Time, n)
		for i := range begun {
			if err := p.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			begun[i] = time.Now()
		}
		for _, at := range begun {
			p.end(at, overloaded)
		}
	}
	for want := firstWrites * 2; want <= mostWrites; want *= 2 {
		write(want/2, false)
		if int(p.bound) != want {
			t.Errorf("after a round of %d the bound is %v", want/2, p.bound)
		}
	}
	write(mostWrites, true)
	if p.bound != mostWrites/2 {
		t.Errorf("after one round that failed the bound is %v", p.bound)
	}
	for range 20 {
		write(1, true)
	}
	if p.bound != 1 {
		t.Errorf("after many that failed the bound is %v", p.bound)
	}
	write(1, false)
	if p.bound != 2 {
		t.Errorf("after one that succeeded the bound is %v", p.bound)
	}
	for range 100 {
		write(int(p.bound), false)
	}
	if p.bound != mostWrites {
		t.Errorf("after many that succeeded the bound is %v", p.bound)
	}
	p.ended = time.Now().Add(-restTime)
	write(1, true)
	if p.bound != firstWrites/2 {
		t.Errorf("after a rest and one that failed the bound is %v", p.bound)
	}
}

// A write that is not sent in time gives up its place.
func TestPaceDoesNotWaitForever(t *testing.T) {
	p := &pace{bound: 1, ended: time.Now()}
	if err := p.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.begin(over); err == nil || len(p.waiting) > 0 {
		t.Errorf("it began: %v; %d wait", err, len(p.waiting))
	}
	p.end(time.Now(), false)
	if err := p.begin(t.Context()); err != nil || p.inFlight != 1 {
		t.Errorf("%v; %d in flight", err, p.inFlight)
	}
}

// A server that refuses more than three writes at a time gets few more than that, and all of them
// are written in the end.
func TestSlowServerIsNotOverrun(t *testing.T) {
	var mu sync.Mutex
	running, refused := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		running++
		accept := running <= 3
		if !accept {
			refused++
		}
		mu.Unlock()
		if !accept {
			w.WriteHeader(http.StatusTooManyRequests)
		} else {
			time.Sleep(5 * time.Millisecond) // its work
		}
		mu.Lock()
		running--
		mu.Unlock()
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
	put := func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return true
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return true
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	const clients, writes = 32, 20
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range writes {
				for !put() {
				}
			}
		})
	}
	all.Wait()
	if refused > clients*writes {
		t.Errorf("%d writes were refused for %d that succeeded", refused, clients*writes)
	}
}
