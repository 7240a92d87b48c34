package member

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A server that is slower than its clients write must not be sent more and more: it would work on
// requests whose clients have given up. Each member holds back by what it sees itself, as TCP does.
const (
	// firstWrites is how many writes a member sends at the same time after it has sent none for
	// restTime: all members may begin at that moment. mostWrites is more than its reconcilers send.
	firstWrites = 4
	mostWrites  = 64
	restTime    = time.Second
	// slowWrite is how long a write takes on a server that is overloaded.
	slowWrite = 2 * time.Second
)

// pace bounds how many writes are sent at the same time. The bound doubles each time that as many
// succeeded. It is halved when one was slow or failed, and from then on it grows by one each time.
type pace struct {
	mu       sync.Mutex
	bound    float64
	doubles  bool
	inFlight int
	waiting  []chan struct{}
	// halved is when the bound was halved, ended when the last write ended.
	halved, ended time.Time
}

// begin waits until a write may be sent.
func (p *pace) begin(ctx context.Context) error {
	p.mu.Lock()
	if p.inFlight == 0 && time.Since(p.ended) > restTime {
		p.bound, p.doubles = firstWrites, true
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	p.next()
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, turn); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return ctx.Err()
	}
	return nil // its turn came at the same moment; the caller sends it and calls end
}

// end records a write that began at this time, and whether the server could take it.
func (p *pace) end(begun time.Time, overloaded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	p.ended = time.Now()
	switch {
	case !overloaded && p.doubles:
		p.bound = min(mostWrites, p.bound+1)
	case !overloaded:
		p.bound = min(mostWrites, p.bound+1/p.bound)
	case begun.After(p.halved): // others that were on their way then say nothing new
		p.bound, p.doubles, p.halved = max(1, p.bound/2), false, p.ended
	}
	p.next()
}

// next lets waiting writes begin.
func (p *pace) next() {
	for len(p.waiting) > 0 && p.inFlight < int(p.bound) {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
		p.inFlight++
	}
}
