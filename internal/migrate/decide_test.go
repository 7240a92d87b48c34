package migrate

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// world models what actions, the user, both agents and Submariner's operator do to a cluster.
type world struct {
	f Facts
	o Options
	// asksLighthouse is whether the cluster's DNS server asks Lighthouse's. It does what its
	// configuration says a while after a change.
	asksLighthouse bool
	unloaded       int
}

func newWorld() *world {
	o := Options{Others: map[string]v1alpha1.MigrationPhase{"west": v1alpha1.MigrationSwitched}, DNSLoaded: true}
	return &world{f: healthy(), o: o, asksLighthouse: true}
}

func (w *world) act(a Action) {
	s := w.f.Submariner
	switch a.Kind {
	case InstallKinds:
		for i := range w.f.Kinds {
			w.f.Kinds[i].Ready = true
		}
	case StoreOldest:
		w.f.Kinds[0].Stored = []string{"v1alpha1"}
	case SetGuard:
		w.f.Guard = a.Guard
	case SetPhase:
		w.f.Phase = a.Phase
	case RemovePhase:
		w.f.Phase = ""
	case RedirectDNS:
		s.CustomDNS = unusedDNS(w.f)
	case UnredirectDNS:
		s.CustomDNS = w.f.PreviousDNS
	case ReplaceDNS:
		w.f.DNS = DNS{Seamark: true}
		w.o.DNSLoaded, w.unloaded = false, 20
	case RestoreDNS:
		w.f.DNS = DNS{Lighthouse: true}
		w.o.DNSLoaded, w.unloaded = false, 20
	case DisableAgent:
		s.DiscoveryEnabled = false
	case EnableAgent:
		s.DiscoveryEnabled = true
	case EndDiscovery:
		s.DiscoveryExists = false
	case DeleteLeftover:
		w.f.Services[0].Lighthouse = map[string][]string{}
	case Wait, Stop, Done:
	}
}

// others does what the agents and the operator do by themselves.
func (w *world) others() {
	s, web := w.f.Submariner, &w.f.Services[0]
	if w.unloaded--; w.unloaded <= 0 {
		w.o.DNSLoaded, w.asksLighthouse = true, w.f.DNS.Lighthouse
	}
	if s.OperatorRunning {
		s.DiscoveryExists, s.Redirected = s.DiscoveryEnabled, s.DiscoveryEnabled && s.CustomDNS == unusedDNS(w.f)
		if s.DiscoveryExists && s.CustomDNS != unusedDNS(w.f) {
			w.f.DNS.Lighthouse = true // at any reconcile
		}
	}
	s.DNSRunning = s.DiscoveryExists && s.AgentRunning // it starts after the agent
	s.AgentExists, s.AgentRunning = s.DiscoveryExists, s.DiscoveryExists
	if s.AgentRunning {
		web.Lighthouse = map[string][]string{"west": {"10.97.0.1"}}
		if w.f.Phase == v1alpha1.MigrationReturning {
			web.Managed = false // it overwrites the ServiceImport
		}
	}
	if w.f.Member != nil {
		w.f.Member.AgentRunning, w.f.Member.DNSRunning = true, true
		web.Seamark = map[string][]string{"west": {"10.97.0.1"}}
		if !w.f.Phase.LeavesObjects() {
			web.Managed = true
		}
	} else {
		web.Seamark = map[string][]string{}
	}
}

// check fails if clients could lose the service now.
func (w *world) check(t rapid.TB, after Action) {
	f := w.f
	web := f.Services[0]
	switch {
	case f.DNS.Lighthouse == f.DNS.Seamark:
		t.Fatalf("after %+v the DNS has the blocks of both or of neither: %+v", after, f.DNS)
	case f.DNS.Seamark && len(web.Seamark) == 0:
		t.Fatalf("after %+v the DNS uses Seamark, which has no endpoints", after)
	case f.DNS.Lighthouse && (!f.Submariner.AgentRunning || len(web.Lighthouse) == 0):
		t.Fatalf("after %+v the DNS uses Lighthouse, which has ended", after)
	case w.asksLighthouse && !f.Submariner.DNSRunning:
		t.Fatalf("after %+v the cluster's DNS server still asks Lighthouse's, which does not run", after)
	case f.DNS.Lighthouse && !f.Submariner.DNSRunning:
		t.Fatalf("after %+v the DNS uses Lighthouse's server, which does not run", after)
	case !f.Submariner.DiscoveryEnabled && f.Submariner.AgentExists && f.Guard != GuardAll && f.Phase == v1alpha1.MigrationStopping:
		t.Fatalf("after %+v the uninstall job may delete ServiceImports", after)
	case f.Phase != v1alpha1.MigrationReturning && f.Phase.LeavesObjects() && web.Managed && f.Submariner.AgentRunning:
		t.Fatalf("after %+v Seamark manages a ServiceImport of Lighthouse in phase %s", after, f.Phase)
	case f.Phase == v1alpha1.MigrationReturning && f.Submariner.AgentRunning && web.Managed && f.Guard != GuardAll:
		t.Fatalf("after %+v Lighthouse's agent may delete ServiceImports while it starts", after)
	case after.Kind == DeleteLeftover && w.o.Others["west"] != v1alpha1.MigrationFinished:
		t.Fatal("what Lighthouse left was deleted although west may go back to it")
	case f.Member != nil && f.Submariner.AgentRunning && !f.Phase.LeavesObjects():
		t.Fatalf("after %+v two agents write the ServiceImports", after)
	case f.Member != nil && f.Guard == GuardNone && f.Phase != "":
		t.Fatalf("after %+v Lighthouse's agent may delete what Seamark manages", after)
	}
}

// reach works towards a goal, at most for a number of decisions, and returns the last one.
func (w *world) reach(t rapid.TB, goal Goal, most int) Action {
	from := w.f.Phase
	var a Action
	for range most {
		a = Decide(goal, w.f, w.o)
		if goal == Back && backDone(from, w.f.Phase) {
			a = Action{Kind: Done}
		}
		switch a.Kind {
		case Done, Stop:
			return a
		case Wait:
		default:
			w.act(a)
			w.check(t, a)
		}
		w.others()
		w.check(t, a)
	}
	return a
}

func (w *world) join(t rapid.TB) {
	w.f.Member = &Member{ClusterID: "east", ClusterSet: "fleet"}
	w.others()
	w.check(t, Action{Kind: "join"})
}

const enough = 50

func (w *world) must(t rapid.TB, goal Goal, phase v1alpha1.MigrationPhase) {
	if a := w.reach(t, goal, enough); a.Kind != Done || w.f.Phase != phase {
		t.Fatalf("%s ends with %+v in phase %q, want %q", goal, a, w.f.Phase, phase)
	}
}

func TestThereAndBack(t *testing.T) {
	for _, operator := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) { // not random: rapid.TB alone is needed
			w := newWorld()
			w.f.Submariner.OperatorRunning = operator
			w.must(t, Start, v1alpha1.MigrationShadow)
			w.join(t)
			w.must(t, Switch, v1alpha1.MigrationSwitched)
			w.must(t, Back, v1alpha1.MigrationShadow)
			w.must(t, Switch, v1alpha1.MigrationSwitched)
			w.must(t, Finish, v1alpha1.MigrationFinished)
			if !w.f.Services[0].Managed || len(w.f.Services[0].Lighthouse) == 0 || w.f.Submariner.AgentExists || w.f.Guard != GuardAll {
				t.Fatalf("finished with %+v", w.f)
			}
			w.o.Others["west"] = v1alpha1.MigrationFinished
			w.must(t, Finish, v1alpha1.MigrationFinished)
			if len(w.f.Services[0].Lighthouse) > 0 {
				t.Fatal("the slices of Lighthouse are left although all clusters have finished")
			}
			if a := w.reach(t, Back, enough); !operator {
				if a.Kind != Stop {
					t.Fatalf("back without an operator: got %+v, want that it asks for the operator", a)
				}
				w.f.Submariner.OperatorRunning = true
				w.must(t, Back, v1alpha1.MigrationSwitched)
			}
			if a := w.reach(t, Back, enough); a.Kind != Stop {
				t.Fatalf("back while Lighthouse has ended in west: got %+v, want that it asks for west", a)
			}
			w.o.Others["west"] = v1alpha1.MigrationSwitched
			w.must(t, Back, v1alpha1.MigrationShadow)
			if a := w.reach(t, Back, enough); a.Kind != Stop {
				t.Fatalf("back while a member: got %+v, want that it asks to leave", a)
			}
			w.f.Member = nil
			w.must(t, Back, "")
			if w.f.Guard != GuardNone || w.f.Submariner.CustomDNS.Name != "" || !w.f.DNS.Lighthouse {
				t.Fatalf("back at the beginning with %+v", w.f)
			}
		})
	}
}

// Commands in any order, each killed after any number of steps, with an operator that comes and
// goes: clients never lose the service, and each goal is reached or says what it needs.
func TestKilledAtAnyStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		goals := []Goal{Start, Switch, Finish, Back}
		for range rapid.IntRange(1, 30).Draw(t, "commands") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if w.f.Member == nil && w.f.Phase == v1alpha1.MigrationShadow {
					w.join(t)
				}
			case 1:
				if w.f.Phase == v1alpha1.MigrationShadow { // as MayLeave says
					w.f.Member = nil
					w.others()
				}
			case 2:
				w.f.Submariner.OperatorRunning = rapid.Bool().Draw(t, "operator")
			default:
				goal := rapid.SampledFrom(goals).Draw(t, "goal")
				steps := rapid.IntRange(1, 12).Draw(t, "killed after")
				w.reach(t, goal, steps)
			}
		}
		w.f.Submariner.OperatorRunning = true
		for _, goal := range []Goal{Back, Back, Back, Start} {
			if a := w.reach(t, goal, enough); a.Kind == Wait {
				t.Fatalf("%s waits for ever: %+v", goal, a)
			}
		}
		if w.f.Member == nil {
			w.join(t)
		}
		w.must(t, Switch, v1alpha1.MigrationSwitched)
		w.must(t, Finish, v1alpha1.MigrationFinished)
	})
}

func TestFinishAsksForTheOthers(t *testing.T) {
	for phase, ok := range map[v1alpha1.MigrationPhase]bool{
		"": false, v1alpha1.MigrationShadow: false, v1alpha1.MigrationReturning: false,
		v1alpha1.MigrationSwitched: true, v1alpha1.MigrationStopping: true, v1alpha1.MigrationAdopting: true, v1alpha1.MigrationFinished: true,
	} {
		w := newWorld()
		rapid.Check(t, func(t *rapid.T) {
			w = newWorld()
			w.must(t, Start, v1alpha1.MigrationShadow)
			w.join(t)
			w.must(t, Switch, v1alpha1.MigrationSwitched)
		})
		w.o.Others = map[string]v1alpha1.MigrationPhase{"west": phase}
		if a := Decide(Finish, w.f, w.o); (a.Kind != Stop) != ok {
			t.Errorf("west is in phase %q: got %+v", phase, a)
		}
		w.o = Options{}
		if a := Decide(Finish, w.f, w.o); a.Kind != Stop || !slices.Equal(a.More, []string{"cluster west: not looked at"}) {
			t.Errorf("west was not looked at: got %+v", a)
		}
		w.o.OthersSwitched = true
		if a := Decide(Finish, w.f, w.o); a.Kind == Stop {
			t.Errorf("the user vouches for west: got %+v", a)
		}
	}
}

// A cluster does not go back to a DNS server of Lighthouse that does not run, for instance because
// its image cannot be pulled any more.
func TestBackWaitsForLighthousesDNSServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.must(t, Start, v1alpha1.MigrationShadow)
		w.join(t)
		w.must(t, Switch, v1alpha1.MigrationSwitched)
		w.f.Submariner.DNSRunning = false
		if a := Decide(Back, w.f, w.o); a.Kind != Wait || a.Why != "Lighthouse's DNS server runs" {
			t.Fatalf("got %+v", a)
		}
		w.f.Submariner.DNSRunning = true
		w.must(t, Back, v1alpha1.MigrationShadow)
	})
}

func TestUserChangesTheDNS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.f.DNS = DNS{Unsupported: "another server", Lighthouse: true}
		w.must(t, Start, v1alpha1.MigrationShadow)
		w.join(t)
		if a := w.reach(t, Switch, enough); a.Kind != Stop || w.f.Submariner.CustomDNS.Name != UnusedDNSConfigMap {
			t.Fatalf("got %+v with the operator writing to %v", a, w.f.Submariner.CustomDNS)
		}
		w.f.DNS = DNS{Unsupported: "another server", Seamark: true} // by the user
		w.o.DNSChanged = true
		w.must(t, Switch, v1alpha1.MigrationSwitched)
		w.o.DNSChanged = false
		w.must(t, Finish, v1alpha1.MigrationFinished)
	})
}

// Every action has its own sentence.
func TestSentences(t *testing.T) {
	seen := map[string]ActionKind{}
	for _, kind := range []ActionKind{
		InstallKinds, StoreOldest, RemovePhase, RedirectDNS, UnredirectDNS, ReplaceDNS, RestoreDNS,
		DisableAgent, EnableAgent, EndDiscovery, DeleteLeftover,
	} {
		text := sentence(Action{Kind: kind}, healthy())
		if text == string(kind) || seen[text] != "" {
			t.Errorf("%s says %q, like %v", kind, text, slices.Collect(maps.Values(seen)))
		}
		seen[text] = kind
	}
}
