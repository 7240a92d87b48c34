//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// report prints progress, one line for each step, from any goroutine.
type report struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newReport(out io.Writer) *report {
	if out == nil {
		out = io.Discard
	}
	return &report{out: out, start: time.Now()}
}

// printf prints a line with the time since the start.
func (r *report) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "[%5.1fs] %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write prints lines of progress of other packages.
func (r *report) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		r.printf("%s", strings.TrimRight(line, "\n"))
	}
	return len(text), nil
}

// step calls do and prints how long it took, or that it failed.
func (r *report) step(label string, do func() error) error {
	began := time.Now()
	err := do()
	took := time.Since(began)
	switch {
	case err != nil:
		r.printf("%s: FAILED after %.1fs", label, took.Seconds())
	case took >= 50*time.Millisecond:
		r.printf("%s (%.1fs)", label, took.Seconds())
	default:
		r.printf("%s", label)
	}
	return err
}

const pollInterval = 100 * time.Millisecond

// poll calls ask until it is done or fails, or ctx ends.
func poll(ctx context.Context, ask func() (done bool, err error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		done, err := ask()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// awaitTimeout is long, because it must be enough on two cores that start several clusters and
// compile.
const awaitTimeout = 4 * time.Minute

// await polls until ready returns nil. It fails, with the end of the component's log, when the
// component ends or the time is over.
func (c cluster) await(ctx context.Context, component, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTimeout, fmt.Errorf("not within %s", awaitTimeout))
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		ask, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := ready(ask)
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		if _, alive := c.running(component); !alive {
			return false, fmt.Errorf("%s ended", component)
		}
		return false, nil
	})
	if err == nil {
		return nil
	}
	if last == nil {
		last = errors.New("none")
	}
	return fmt.Errorf("cluster %s: wait for %s: %w (last error: %w); the last lines of %s:\n%s",
		c.name, what, err, last, c.log(component), logTail(c.log(component)))
}

// logTail returns the last lines of a log.
func logTail(path string) string {
	const lines, width = 15, 400
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > width {
			line = line[:width] + "…"
		}
		all[i] = "    " + line
	}
	return strings.Join(all, "\n")
}
