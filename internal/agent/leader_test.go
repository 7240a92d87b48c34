package agent

import (
	"context"
	"testing"
)

// Without leader election a process leads from the start, and has a nonce that no other process
// has.
func TestLeaderWithoutElection(t *testing.T) {
	a, b := newAgent(Options{}), newAgent(Options{})
	select {
	case <-a.elected():
	default:
		t.Error("it is not the leader")
	}
	nonces := map[string]bool{}
	for _, read := range []func(context.Context) (string, error){a.leaderNonce(), b.leaderNonce()} {
		first, err := read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := read(t.Context()); err != nil || again != first {
			t.Errorf("the nonce changed from %s to %s (%v)", first, again, err)
		}
		nonces[first] = true
	}
	if len(nonces) != 2 {
		t.Errorf("two processes have the nonces %v", nonces)
	}
}
