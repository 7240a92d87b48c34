package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// While something is waited for, the facts are read after minPoll, and then less and less often,
// down to once in maxPoll: much takes a moment only, but the end of Lighthouse minutes.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

// maxSteps bounds the actions of one run. A goal takes eight at most; more mean that another client
// undoes them.
const maxSteps = 40

// Result is what a run did, and what comes next.
type Result struct {
	Goal  Goal                    `json:"goal"`
	Phase v1alpha1.MigrationPhase `json:"phase"`
	// Steps are the changes that were made, as sentences.
	Steps []string `json:"steps"`
	// Next is what to do next, Back how to undo the goal.
	Next string `json:"next"`
	Back string `json:"back,omitempty"`
}

// StoppedError means that the user must do something before the goal can be reached.
type StoppedError struct {
	Why  string
	More []string
}

// Error returns the reason and the details, one per line.
func (e *StoppedError) Error() string {
	return strings.Join(append([]string{e.Why}, limit(e.More)...), "\n  ")
}

// TimeoutError means that something waited for did not happen.
type TimeoutError struct {
	Goal Goal
	Why  string
	More []string
}

// Error returns what was waited for, and that the command continues where it was.
func (e *TimeoutError) Error() string {
	lines := append([]string{fmt.Sprintf("still waiting until %s; run %s again to continue", e.Why, e.Goal)}, limit(e.More)...)
	return strings.Join(lines, "\n  ")
}

// limit returns the first details, and how many more there are.
func limit(all []string) []string {
	const most = 10
	if len(all) <= most {
		return all
	}
	return append(append([]string{}, all[:most]...), fmt.Sprintf("and %d more", len(all)-most))
}

// Progress is called while a goal is being reached.
type Progress struct {
	// Changed is called with a sentence for each change that was made, Waiting with what is
	// waited for.
	Changed, Waiting func(string)
}

// Run brings the cluster of c to a goal. It can be interrupted at any point and run again. It fails
// with a StoppedError, with a TimeoutError if something waited for has not happened after timeout,
// and if the API server refuses a request.
func Run(ctx context.Context, c client.Client, goal Goal, o Options, timeout time.Duration, p Progress) (Result, error) {
	result := Result{Goal: goal, Steps: []string{}}
	w := &waiting{goal: goal, started: time.Now(), timeout: timeout, say: p.Waiting}
	from := v1alpha1.MigrationPhase("")
	for first := true; ; first = false {
		f, err := Read(ctx, c)
		if err != nil {
			return result, err
		}
		if first {
			from = f.Phase
		}
		o.DNSLoaded = o.DNSLoaded || hasLoaded(f.DNS.Changed, w.started, time.Now())
		a := Decide(goal, f, o)
		// One command does not both end Lighthouse and delete what it left: the user looks in between.
		if goal == Finish && from != v1alpha1.MigrationFinished && f.Phase == v1alpha1.MigrationFinished {
			a = Action{Kind: Done}
		}
		if goal == Back && backDone(from, f.Phase) {
			a = Action{Kind: Done}
		}
		result.Phase = f.Phase
		switch a.Kind {
		case Done:
			result.Next, result.Back = next(goal, f), undo(f.Phase)
			return result, nil
		case Stop:
			return result, &StoppedError{a.Why, a.More}
		case Wait:
			if err := w.wait(ctx, a.Why, a.More); err != nil {
				return result, err
			}
			continue
		}
		if len(result.Steps) == maxSteps {
			return result, fmt.Errorf("the cluster did not stay as it was changed %d times (last: %s): find out which client undoes the changes",
				maxSteps, a.Kind)
		}
		if err := Act(ctx, c, f, a); objects.IsPolicyNotReady(err) {
			const until = "the API server has read its admission policies, up to 30 seconds after its start"
			if err := w.wait(ctx, until, []string{err.Error()}); err != nil {
				return result, err
			}
			continue
		} else if err != nil {
			return result, err
		}
		step := sentence(a, f)
		result.Steps = append(result.Steps, step)
		p.Changed(step)
	}
}

// waiting is what a run waits for.
type waiting struct {
	goal             Goal
	started          time.Time
	timeout, between time.Duration
	until            string
	say              func(until string)
}

// wait pauses before something waited for is looked at again, longer each time. It fails with a
// TimeoutError when the run has taken too long.
func (w *waiting) wait(ctx context.Context, until string, more []string) error {
	if time.Since(w.started) > w.timeout {
		return &TimeoutError{w.goal, until, more}
	}
	if until != w.until {
		w.until, w.between = until, minPoll
		w.say(until)
	}
	defer func() { w.between = min(w.between*3/2, maxPoll) }()
	return pause(ctx, w.between)
}

// backDone reports whether one step back is complete: back undoes one command, not all of them.
func backDone(from, now v1alpha1.MigrationPhase) bool {
	switch from {
	case v1alpha1.MigrationStopping, v1alpha1.MigrationAdopting, v1alpha1.MigrationFinished, v1alpha1.MigrationReturning:
		return now == v1alpha1.MigrationSwitched
	case v1alpha1.MigrationSwitched:
		return now == v1alpha1.MigrationShadow
	case "", v1alpha1.MigrationShadow:
	}
	return false
}

// sentence says what an action has changed.
func sentence(a Action, f Facts) string {
	switch a.Kind {
	case InstallKinds:
		return "The CRDs of the MCS API serve v1beta1 beside v1alpha1, and store v1alpha1."
	case StoreOldest:
		return "All objects of the MCS API are stored as v1alpha1."
	case SetGuard:
		return guardSentence(a.Guard)
	case SetPhase:
		return phaseSentence(a.Phase)
	case RemovePhase:
		return "ClusterProperty migration.seamark.dev is deleted: the move is undone."
	case RedirectDNS:
		return fmt.Sprintf("Submariner's operator leaves the cluster's DNS alone: it writes its block to ConfigMap %s/%s, which no server reads.",
			f.Submariner.Namespace, UnusedDNSConfigMap)
	case UnredirectDNS:
		return "Submariner's operator writes its block where it did before."
	case ReplaceDNS:
		return "The cluster's DNS forwards clusterset.local to seamark-dns."
	case RestoreDNS:
		return "The cluster's DNS forwards clusterset.local to Lighthouse's server again."
	case DisableAgent:
		return "The Submariner resource asks for no service discovery any more."
	case EnableAgent:
		return "The Submariner resource asks for service discovery again."
	case EndDiscovery:
		return "ServiceDiscovery is deleted, without its uninstall job."
	case DeleteLeftover:
		return "Lighthouse's EndpointSlices and its contributions of this cluster are deleted."
	case Wait, Stop, Done:
	}
	return string(a.Kind)
}

func guardSentence(g Guard) string {
	switch g {
	case GuardOwn:
		return "Lighthouse's agent cannot delete ServiceImports that Seamark manages."
	case GuardAll:
		return "Lighthouse's agent cannot delete any ServiceImport, and its uninstall job cannot run."
	case GuardNone, guardPending:
	}
	return "The admission policy for Lighthouse's agent is removed."
}

func phaseSentence(p v1alpha1.MigrationPhase) string {
	switch p {
	case v1alpha1.MigrationShadow:
		return "Phase shadow: Lighthouse serves this cluster; Seamark may run beside it."
	case v1alpha1.MigrationSwitched:
		return "Phase switched: Seamark has all endpoints that Lighthouse has; the ServiceImports are Lighthouse's."
	case v1alpha1.MigrationStopping:
		return "Phase stopping: Lighthouse's agent ends."
	case v1alpha1.MigrationAdopting:
		return "Phase adopting: Lighthouse's agent has ended; Seamark's takes over the ServiceImports."
	case v1alpha1.MigrationFinished:
		return "Phase finished: Seamark serves this cluster."
	case v1alpha1.MigrationReturning:
		return "Phase returning: Lighthouse's agent starts again."
	}
	return string(p)
}

// next says what to do after a goal was reached.
func next(goal Goal, f Facts) string {
	switch {
	case f.Phase == v1alpha1.MigrationShadow && f.Member == nil:
		return JoinCommand(f) + "; then seamark migrate lighthouse status, until Seamark has all endpoints"
	case f.Phase == v1alpha1.MigrationShadow && goal == Back:
		return "seamark leave and seamark migrate lighthouse back to remove Seamark, or seamark migrate lighthouse switch to try again"
	case f.Phase == v1alpha1.MigrationShadow:
		return "start the other clusters, then seamark migrate lighthouse switch in each"
	case f.Phase == v1alpha1.MigrationSwitched && goal == Back:
		return "when all clusters have come so far, seamark migrate lighthouse back in each to use Lighthouse again; or finish to try again"
	case f.Phase == v1alpha1.MigrationSwitched:
		return "switch the other clusters, then seamark migrate lighthouse finish in each"
	case f.Phase == v1alpha1.MigrationFinished && hasLeftovers(f):
		return "finish the other clusters; after the last, run finish --others in each once more, which deletes what Lighthouse left there"
	case f.Phase == v1alpha1.MigrationFinished:
		return "when all clusters say so, delete what Lighthouse left on its broker: " +
			"kubectl -n submariner-k8s-broker delete serviceimports.multicluster.x-k8s.io,endpointslices --all"
	case f.Phase == "" && goal == Back:
		return "nothing: Lighthouse serves this cluster as before"
	case f.Phase == "":
		return "seamark migrate lighthouse check, then seamark migrate lighthouse start"
	case f.Phase == v1alpha1.MigrationReturning:
		return "seamark migrate lighthouse back, which continues"
	}
	return "seamark migrate lighthouse finish, which continues"
}

// Next says what comes after the phase in which a cluster is.
func Next(f Facts) string {
	if missing := Missing(f.Services); f.Phase == v1alpha1.MigrationShadow && f.Member != nil && len(missing) > 0 {
		return "wait until Seamark lacks nothing; then start the other clusters, then seamark migrate lighthouse switch in each"
	}
	return next("", f)
}

// undo says how to go back from a phase.
func undo(p v1alpha1.MigrationPhase) string {
	if p == "" {
		return ""
	}
	if p == v1alpha1.MigrationShadow {
		return "seamark leave, then seamark migrate lighthouse back"
	}
	return "seamark migrate lighthouse back"
}
