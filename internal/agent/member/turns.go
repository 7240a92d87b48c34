package member

import (
	"context"
	"sync"
	"time"
)

// turns lets the watches of one member begin one after another while their server is away or busy.
// So a member asks such a server one thing at a time, and when it is back the other watches follow
// the first at once. A watch that fails again goes to the end of the line: what only that watch
// meets delays the others once.
type turns struct {
	line chan struct{} // holds one value while a watch has its turn

	mu     sync.Mutex
	failed failures  // since the last attempt that succeeded
	next   time.Time // when the next one may begin
}

func newTurns() *turns { return &turns{line: make(chan struct{}, 1)} }

// begin waits for the turn of a watch whose last attempt failed; the caller then calls end. delay
// returns for how long to leave the server alone after attempts that failed before.
func (t *turns) begin(ctx context.Context, delay func(failures) time.Duration) error {
	t.mu.Lock()
	if t.failed.all == 0 { // the others that fail at the same moment do not count
		t.failed, t.next = failures{all: 1}, time.Now().Add(delay(failures{}))
	}
	t.mu.Unlock()
	select {
	case t.line <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	wait := time.Until(t.next)
	t.mu.Unlock()
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		<-t.line
		return ctx.Err()
	}
}

// areFailing reports whether the last attempt failed.
func (t *turns) areFailing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed.all > 0
}

// outcome is what became of an attempt.
type outcome int

const (
	succeeded outcome = iota
	// refused: the server answered, but cannot serve it yet.
	refused
	// noAnswer: it did not answer.
	noAnswer
)

// end ends a turn. If the attempt succeeded, the next one may begin at once.
func (t *turns) end(o outcome, delay func(failures) time.Duration) {
	t.mu.Lock()
	switch o {
	case succeeded:
		t.failed, t.next = failures{}, time.Time{}
	case refused:
		t.failed.answered++
	case noAnswer:
		t.failed.answered = 0
	}
	if o != succeeded {
		t.next = time.Now().Add(delay(t.failed))
		t.failed.all++
	}
	t.mu.Unlock()
	<-t.line
}
