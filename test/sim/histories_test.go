package sim

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	seed     = flag.Uint64("sim.seed", 0, "play only the history of this seed")
	count    = flag.Int("sim.histories", 60, "how many histories to play")
	duration = flag.Duration("sim.duration", 0, "play histories for this long instead")
	first    = flag.Uint64("sim.first", 1, "the first seed")
	off      = flag.String("sim.off", "", "more rules that are not checked, separated by commas")
	all      = flag.Bool("sim.all", false, "check also the rules that are not kept yet")
	early    = flag.Bool("sim.early", false, "set the broker back also to a time before services were exported")
	emphasis = flag.String("sim.emphasis", "", "draw actions of a group more often: death or restore")
	survey   = flag.Bool("sim.survey", false, "play all histories and list which rules are broken, and by which seeds first")
	verbose  = flag.Bool("sim.trace", false, "print what happens in the history of -sim.seed")
)

// TestHistories plays histories and prints the first that breaks a rule, shortened.
func TestHistories(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	if *all {
		clear(notYet)
	}
	if _, known := emphases[*emphasis]; !known && *emphasis != "" {
		t.Fatalf("-sim.emphasis=%s: there are only death and restore", *emphasis)
	}
	earlyBackups, actNames = *early, namesOfActs(*emphasis)
	for name := range strings.SplitSeq(*off, ",") {
		notYet[rule(name)] = "switched off by a flag"
	}
	if *seed != 0 {
		playOne(t, *seed)
		return
	}
	if *processes > 1 {
		playInProcesses(t)
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(6000)) // histories are short and need little memory
	var next, played atomic.Uint64
	var failed atomic.Bool
	found := findings{seeds: map[rule][]uint64{}}
	start, cpu := time.Now(), cpuTime(t)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				n := next.Add(1) - 1
				if *duration > 0 && time.Since(start) > *duration || *duration == 0 && n >= uint64(*count) {
					return
				}
				h := newHistory(*first + n)
				out := h.play(t, false)
				played.Add(1)
				found.add(out, h.seed)
				if out.failure != nil && !*survey && failed.CompareAndSwap(false, true) {
					explainFailure(t, h, out.failure, played.Load())
				}
			}
		})
	}
	workers.Wait()
	n := float64(played.Load())
	t.Logf("%.0f histories in %.1f s: %.0f a minute; %.1f ms of CPU time each", n, time.Since(start).Seconds(), n/time.Since(start).Minutes(),
		float64((cpuTime(t)-cpu).Microseconds())/n/1000)
	t.Logf("a history has on average %v", &found.size)
	if *survey {
		found.report(t)
	}
}

// cpuTime returns the CPU time of this process. Unlike wall time it says something on a machine
// that others use too.
func cpuTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// findings are the broken rules with the seeds that broke them, and how much happened.
type findings struct {
	mu    sync.Mutex
	seeds map[rule][]uint64
	size  size
}

func (f *findings) add(out outcome, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size.add(out.size)
	if broken := brokenRule(out.failure); broken != "" {
		f.seeds[broken] = append(f.seeds[broken], seed)
	}
}

func (f *findings) report(t *testing.T) {
	for _, r := range slices.Sorted(maps.Keys(f.seeds)) {
		seeds := slices.Sorted(slices.Values(f.seeds[r]))
		t.Errorf("%s: broken by %d histories, first by seeds %v", r, len(seeds), seeds[:min(len(seeds), 5)])
	}
}

func explainFailure(t *testing.T, h history, failure error, played uint64) {
	h = h.shrink(t, brokenRule(failure))
	out := h.play(t, true)
	t.Errorf("seed %d, after %d histories: %s", h.seed, played, h.report(out.failure, out.trace))
}

func playOne(t *testing.T, seed uint64) {
	h := newHistory(seed)
	out := h.play(t, true)
	if *verbose {
		for _, line := range out.trace {
			fmt.Println(line)
		}
	}
	if out.failure != nil {
		explainFailure(t, h, out.failure, 1)
	}
}

// TestReplay checks that a seed always gives the same history.
func TestReplay(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for seed := range uint64(4) {
		h := newHistory(seed)
		a, b := h.play(t, true), h.play(t, true)
		if brokenRule(a.failure) != brokenRule(b.failure) {
			t.Errorf("seed %d: %v the first time, %v the second", seed, a.failure, b.failure)
		}
		first, second := a.trace, b.trace
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				t.Fatalf("seed %d: event %d is\n%s\nthe first time, and\n%s\nthe second", seed, i, first[i], second[i])
			}
		}
		if len(first) != len(second) {
			t.Errorf("seed %d: %d events the first time, %d the second", seed, len(first), len(second))
		}
	}
}
