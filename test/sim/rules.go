package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// rule is an invariant.
type rule string

// The rules. The first nine are checked after every write, the others when the world has come to
// rest.
const (
	// ruleSource: an endpoint is attributed to the cluster that published it.
	ruleSource rule = "endpoint-source"
	// ruleUnique: no two services have the same address.
	ruleUnique rule = "address-unique"
	// ruleStable: the address of a service does not change while the service lives.
	ruleStable rule = "address-stable"
	// ruleServed: a port of a service whose exporters do not change never loses its last endpoint.
	ruleServed rule = "port-served"
	// ruleReplaced: the record of a Service that is replaced at once stays.
	ruleReplaced rule = "replaced-stays"
	// ruleDead: endpoints of a dead cluster that were dropped do not come back while it is dead.
	ruleDead rule = "dead-stays-dropped"
	// ruleCutOff: a member that is cut off from the broker drops no endpoints of living clusters.
	ruleCutOff rule = "cut-off-keeps"
	// ruleUnseen: an agent deletes no object that changed since its cache had it.
	ruleUnseen rule = "unseen-stays"
	// ruleRepeat: an agent does not write an object again before its cache has its last write.
	ruleRepeat rule = "no-repeated-write"

	// ruleConverge: at the end all members agree with the merge of what is exported.
	ruleConverge rule = "converges"
	// ruleFamilies: the IP families of a service are those of the export with precedence.
	ruleFamilies rule = "families-of-oldest"
	// ruleLiving: the living exporters decide if the oldest exporter is dead for long.
	ruleLiving rule = "living-decide"
	// ruleDecided: what the living have decided about a service stays when the dead return.
	ruleDecided rule = "decided-stays"
	// ruleForeign: annotations of other controllers on ServiceImports stay.
	ruleForeign rule = "foreign-annotations-stay"
	// ruleRest: nothing is written when nothing changes.
	ruleRest rule = "no-write-at-rest"
	// ruleRestart: a restarted agent writes nothing when nothing changed.
	ruleRestart rule = "restart-writes-nothing"
)

// notYet are the rules that the agents do not keep yet, with the reason.
var notYet = map[rule]string{}

// earlyBackups lets the broker be set back to a time before services were exported. Not all agents
// keep all rules then; see docs/simulation.md.
var earlyBackups bool

// violation is a rule that does not hold.
type violation struct {
	rule rule
	text string
}

func (v *violation) Error() string { return fmt.Sprintf("%s: %s", v.rule, v.text) }

// brokenRule returns the rule that a history broke.
func brokenRule(failure error) rule {
	var v *violation
	if errors.As(failure, &v) {
		return v.rule
	}
	return ""
}

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 1))
}
