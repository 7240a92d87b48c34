package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var processes = flag.Int("sim.processes", 1, "play in so many processes at once, each on one core")

// seedsOfProcess keeps the seeds of several processes apart.
const seedsOfProcess = 100_000_000

var playedLine = regexp.MustCompile(`(\d+) histories in `)

// playInProcesses plays the histories in several processes. A history is one thread of many
// goroutines. If several are played in one process, these move between the cores, which costs an
// eighth of the time.
func playInProcesses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var played atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for i := range *processes {
		args := []string{"-test.run=^TestHistories$", "-test.v", "-test.timeout=24h"}
		for _, arg := range os.Args[1:] {
			if strings.HasPrefix(arg, "-sim.") {
				args = append(args, arg)
			}
		}
		args = append(args, "-sim.processes=1", fmt.Sprintf("-sim.first=%d", *first+uint64(i)*seedsOfProcess),
			fmt.Sprintf("-sim.histories=%d", (*count+i)/(*processes)))
		group.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], args...)
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			out, err := cmd.CombinedOutput()
			if n := playedLine.FindSubmatch(out); n != nil {
				histories, _ := strconv.ParseInt(string(n[1]), 10, 64)
				played.Add(histories)
			}
			switch {
			case err == nil:
				t.Logf("%s", out)
			case ctx.Err() == nil:
				t.Errorf("%s", out)
				if !*survey {
					cancel()
				}
			}
		})
	}
	group.Wait()
	t.Logf("all processes: %d histories in %.1f s, %.0f a minute",
		played.Load(), time.Since(start).Seconds(), float64(played.Load())/time.Since(start).Minutes())
}
