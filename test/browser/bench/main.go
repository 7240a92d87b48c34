// Command bench measures the page with a large clusterset that was made up: the time until the
// matrix is drawn, until a change is drawn, and the memory of server and browser.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	cd "github.com/chromedp/chromedp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/ui/server"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/test/browser"
	"github.com/seamark-dev/seamark/test/browser/generate"
)

type options struct{ services, clusters, loads, changes int }

func main() {
	var o options
	flag.IntVar(&o.services, "services", 5000, "how many services")
	flag.IntVar(&o.clusters, "clusters", 250, "how many clusters")
	flag.IntVar(&o.loads, "loads", 5, "how often the page is opened")
	flag.IntVar(&o.changes, "changes", 40, "how many changes are measured")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// page is what is measured.
type page struct {
	fleet *generate.Fleet
	hub   *server.Hub
	now   *state.Snapshot
	url   string
}

func run(o options) error {
	if o.services < 100 {
		return errors.New("changes are measured with 100 services or more")
	}
	begin := time.Now()
	f := generate.New(o.services, o.clusters, 100)
	f.Refresh(f.All()...)
	explained := time.Since(begin)
	p := &page{fleet: f, now: f.Snapshot(1)}
	p.hub = server.NewHub(state.NewHistory(p.now))
	stop, err := p.serve()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%d services × %d clusters\n\n| what | p50 | worst |\n|---|---|---|\n", o.services, o.clusters)
	fmt.Printf("| explain one service for all clusters | %s | |\n", (explained / time.Duration(o.services)).Round(time.Microsecond))
	ctx, close, err := browser.Launch(cd.Flag("enable-precise-memory-info", true))
	if err != nil {
		return err
	}
	defer close()
	if err := p.loads(ctx, o.loads); err != nil {
		return err
	}
	if err := p.changes(ctx, o.changes); err != nil {
		return err
	}
	p.memory()
	return nil
}

func (p *page) serve() (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	token := server.NewToken()
	p.url = fmt.Sprintf("http://%s/services?all=1#token=%s", l.Addr(), token)
	s := server.New(server.Options{Hub: p.hub, Token: token, Live: true, Clean: strings.TrimSpace,
		Explain: func(context.Context, types.NamespacedName) (explain.Report, bool) { return p.fleet.Explain(0), true }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return func() { cancel(); <-ended }, nil
}

// open opens the page in a tab and waits until it is drawn.
func (p *page) open(parent context.Context) (ctx context.Context, cancel func(), err error) {
	ctx, cancel = cd.NewContext(parent, cd.WithNewBrowserContext())
	err = cd.Do(ctx, cd.EmulateViewport(1600, 900), cd.Navigate(p.url))
	if err == nil {
		_, err = cd.Run(ctx, cd.Poll[bool](`document.documentElement.dataset.ready === "true"`, cd.WithPollingTimeout(time.Minute)))
	}
	return ctx, cancel, err
}

// loads measures the time from the start of the navigation until the matrix was drawn.
func (p *page) loads(parent context.Context, n int) error {
	var painted, memory []float64
	for range n {
		ctx, cancel, err := p.open(parent)
		if err != nil {
			cancel()
			return err
		}
		at, err := cd.Run(ctx, cd.Evaluate[float64](`performance.getEntriesByName("painted")[0].startTime`))
		if err == nil {
			painted = append(painted, at)
			at, err = cd.Run(ctx, cd.Evaluate[float64](`performance.memory.usedJSHeapSize / 1048576`))
			memory = append(memory, at)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	report("first paint of the matrix", "ms", painted)
	report("heap of the page", "MiB", memory)
	return nil
}

// changes measures the time from the publication of a change until it was drawn.
func (p *page) changes(parent context.Context, n int) error {
	ctx, cancel, err := p.open(parent)
	defer cancel()
	if err != nil {
		return err
	}
	live := cd.Poll[bool](`document.getElementById("live").textContent === "live"`, cd.WithPollingTimeout(time.Minute))
	if _, err := cd.Run(ctx, live); err != nil {
		return err
	}
	for _, size := range []int{1, p.fleet.Services} {
		var took []float64
		for i := range max(2, n/size) {
			p.change(i, size)
			published := time.Now()
			expression := fmt.Sprintf(`Number(document.documentElement.dataset.seq) >= %d &&
				performance.timeOrigin + performance.getEntriesByName("drawn").at(-1).startTime`, p.now.Seq)
			at, err := cd.Run(ctx, cd.Poll[float64](expression, cd.WithPollingInterval(5*time.Millisecond), cd.WithPollingTimeout(time.Minute)))
			if err != nil {
				return err
			}
			took = append(took, at-float64(published.UnixMicro())/1000)
		}
		report(fmt.Sprintf("change drawn, rows that differ: %d", size), "ms", took)
	}
	return nil
}

// change makes one service have trouble, or have it no more; or it makes a cluster stop to answer,
// or answer again, which changes all services.
func (p *page) change(i, size int) {
	indexes := p.fleet.All()
	switch {
	case size < len(indexes):
		indexes = indexes[50 : 50+size]
		p.fleet.Trouble = 50 + 50*(i%2) // it was 100, so the first is a change too
	case i%2 == 0:
		p.fleet.Problem[generate.ClusterID(0)] = "no answer in time"
	default:
		delete(p.fleet.Problem, generate.ClusterID(0))
	}
	p.fleet.Refresh(indexes...)
	after := p.fleet.Snapshot(p.now.Seq + 1)
	d := state.Diff(p.now, after)
	d.Entries = state.NewObserver().Observe(p.now, after)
	p.now = after
	p.hub.Publish(d, after)
}

// memory reports the memory of this process, which is the server and what was made up.
func (p *page) memory() {
	runtime.GC()
	var used runtime.MemStats
	runtime.ReadMemStats(&used)
	fmt.Printf("| heap of the server | %d MiB | |\n", used.HeapAlloc>>20)
}

func report(what, unit string, values []float64) {
	slices.Sort(values)
	fmt.Printf("| %s | %.0f %s | %.0f %s |\n", what, values[len(values)/2], unit, values[len(values)-1], unit)
}
