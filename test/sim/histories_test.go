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
	survey   = flag.Bool("sim.survey", false, "play all histories and list which rules are broken, and by which seeds first")
	verbose  = flag.Bool("sim.trace", false, "print what happens in the history of -sim.seed")
)

// TestHistories plays histories and prints the first that breaks a rule, shortened.
func TestHistories(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	if *all {
		clear(notYet)
	}
	for name := range strings.SplitSeq(*off, ",") {
		notYet[rule(name)] = "switched off by a flag"
	}
	if *seed != 0 {
		playOne(t, *seed)
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // histories are short and need little memory
	var next, played atomic.Uint64
	var failed atomic.Bool
	found := findings{seeds: map[rule][]uint64{}}
	start := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				n := next.Add(1) - 1
				if *duration > 0 && time.Since(start) > *duration || *duration == 0 && n >= uint64(*count) {
					return
				}
				h := newHistory(*first + n)
				_, failure := h.play(t, false)
				played.Add(1)
				if failure != nil && *survey {
					found.add(failure, h.seed)
				} else if failure != nil && failed.CompareAndSwap(false, true) {
					explainFailure(t, h, failure, played.Load())
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d histories in %.1f s: %.0f a minute", played.Load(), time.Since(start).Seconds(),
		float64(played.Load())/time.Since(start).Minutes())
	found.report(t)
}

// findings are the broken rules with the seeds that broke them.
type findings struct {
	mu    sync.Mutex
	seeds map[rule][]uint64
}

func (f *findings) add(failure error, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	broken := brokenRule(failure)
	f.seeds[broken] = append(f.seeds[broken], seed)
}

func (f *findings) report(t *testing.T) {
	for _, r := range slices.Sorted(maps.Keys(f.seeds)) {
		seeds := slices.Sorted(slices.Values(f.seeds[r]))
		t.Errorf("%s: broken by %d histories, first by seeds %v", r, len(seeds), seeds[:min(len(seeds), 5)])
	}
}

func explainFailure(t *testing.T, h history, failure error, played uint64) {
	h = h.shrink(t, brokenRule(failure))
	trace, failure := h.play(t, true)
	t.Errorf("seed %d, after %d histories: %s", h.seed, played, h.report(failure, trace))
}

func playOne(t *testing.T, seed uint64) {
	h := newHistory(seed)
	trace, failure := h.play(t, true)
	if *verbose {
		for _, line := range trace {
			fmt.Println(line)
		}
	}
	if failure != nil {
		explainFailure(t, h, failure, 1)
	}
}

// TestReplay checks that a seed always gives the same history.
func TestReplay(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for seed := range uint64(4) {
		h := newHistory(seed)
		first, firstFailure := h.play(t, true)
		second, secondFailure := h.play(t, true)
		if brokenRule(firstFailure) != brokenRule(secondFailure) {
			t.Errorf("seed %d: %v the first time, %v the second", seed, firstFailure, secondFailure)
		}
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
