package sim

import (
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// found are seeds whose histories broke a rule, by what the agent did wrong. As soon as actions or
// the agents' writes change, a seed gives another history, which must hold too.
var found = map[string][]uint64{
	"did not notice a broker that was restored before the first renewal":           {500011, 500040, 500183, 500277},
	"did not notice a broker that was restored twice":                              {500449, 500981},
	"left its record on a broker that forgot its deletion":                         {500929},
	"did not know what it had saved after an answer was lost":                      {501232},
	"acted on a verdict that it had not saved":                                     {41874},
	"deleted the slices of the dead before it had written those of the living":     {153},
	"ended the wait for lost records while it was cut off":                         {100000707},
	"took the lease of a restored broker for a sign of life after a restart":       {744},
	"overwrote the aggregate of a member whose record it did not see, without end": {24007},
	"did not look at a replaced Service that it saw after its slices":              {300186},
	"gave a new service the address that another had a moment ago":                 {21213},
	"took a family from a derived Service, and with it the address":                {711},
	"resynced what a restored broker has before it had listed it again":            {1284, 1769},
}

// TestFoundHistories plays histories that once broke a rule.
func TestFoundHistories(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for name, seeds := range found {
		for _, seed := range seeds {
			if out := newHistory(seed).play(t, false); out.failure != nil {
				t.Errorf("seed %d, of an agent that %s: %v", seed, name, out.failure)
			}
		}
	}
}
