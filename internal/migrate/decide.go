package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Goal is what a command brings a cluster to.
type Goal string

const (
	// Start lets Seamark run beside Lighthouse, unused.
	Start Goal = "start"
	// Switch makes the cluster's DNS use Seamark.
	Switch Goal = "switch"
	// Finish ends Lighthouse in the cluster.
	Finish Goal = "finish"
	// Back undoes the last of these.
	Back Goal = "back"
)

// ActionKind is what an action does.
type ActionKind string

// The actions. Each is idempotent, and its effect is visible in the Facts.
const (
	InstallKinds   ActionKind = "install-kinds"     // the CRDs serve both versions and store the oldest
	StoreOldest    ActionKind = "store-oldest"      // no object is stored in another version
	SetGuard       ActionKind = "set-guard"         // the admission policy is Action.Guard
	SetPhase       ActionKind = "set-phase"         // the phase is Action.Phase
	RemovePhase    ActionKind = "remove-phase"      // the ClusterProperty is gone
	RedirectDNS    ActionKind = "redirect-operator" // the operator writes its forward block to a ConfigMap that no server reads
	UnredirectDNS  ActionKind = "restore-operator"  // the operator writes it where it did before
	ReplaceDNS     ActionKind = "replace-dns"       // the cluster's DNS forwards to seamark-dns
	RestoreDNS     ActionKind = "restore-dns"       // the cluster's DNS forwards to Lighthouse's server
	DisableAgent   ActionKind = "disable-discovery" // the Submariner resource asks for no service discovery
	EnableAgent    ActionKind = "enable-discovery"  // it asks for it again
	EndDiscovery   ActionKind = "end-discovery"     // the ServiceDiscovery resource is gone, without its uninstall job
	DeleteLeftover ActionKind = "delete-leftovers"  // what Lighthouse's agent wrote in this cluster is gone
	Wait           ActionKind = "wait"              // for what Action.Why says
	Stop           ActionKind = "stop"              // the user must do something first
	Done           ActionKind = "done"              // the goal is reached
)

// Action is the next thing to do on the way to a goal.
type Action struct {
	Kind ActionKind
	// Phase and Guard are the values that SetPhase and SetGuard set.
	Phase v1alpha1.MigrationPhase
	Guard Guard
	// Why is what Wait waits for, and what Stop asks for. More are details, such as the endpoints that
	// are missing.
	Why  string
	More []string
}

// Options are what the user says about a goal.
type Options struct {
	// DNSChanged says that the user changes the cluster's DNS, where Seamark cannot.
	DNSChanged bool
	// DNSLoaded says that the cluster's DNS server has loaded its configuration since it was last
	// changed. Run finds out by the time.
	DNSLoaded bool
	// Others are the phases of the other clusters that were looked at, by id. OthersSwitched says that
	// the user vouches for the rest.
	Others         map[string]v1alpha1.MigrationPhase
	OthersSwitched bool
}

// Decide returns the next action on the way to a goal.
func Decide(goal Goal, f Facts, o Options) Action {
	if f.Submariner == nil {
		return stop("this cluster has no Submariner resource: there is nothing to move")
	}
	switch goal {
	case Start:
		return start(f)
	case Switch:
		return switchDNS(f, o)
	case Finish:
		return finish(f, o)
	case Back:
		return back(f, o)
	}
	return stop(fmt.Sprintf("%q is no goal", goal))
}

func start(f Facts) Action {
	switch {
	case f.Phase == "" && Blocking(Check(f)):
		return stop("seamark migrate lighthouse check finds what blocks the move")
	case f.Phase == "" && f.Member != nil:
		return stop("this cluster is a member of a clusterset already, and its agent writes the ServiceImports of Lighthouse: " +
			"run seamark leave, then start, then join again")
	case slices.ContainsFunc(f.Kinds, func(k Kind) bool { return !k.Ready }):
		return Action{Kind: InstallKinds}
	case slices.ContainsFunc(f.Kinds, Kind.storesOther):
		return Action{Kind: StoreOldest}
	case (f.Phase == "" || f.Phase == v1alpha1.MigrationShadow) && f.Guard != GuardOwn:
		return Action{Kind: SetGuard, Guard: GuardOwn}
	case f.Phase == "":
		return Action{Kind: SetPhase, Phase: v1alpha1.MigrationShadow}
	}
	return Action{Kind: Done}
}

func switchDNS(f Facts, o Options) Action {
	switch f.Phase {
	case "":
		return stop("the move has not started: run seamark migrate lighthouse start")
	case v1alpha1.MigrationStopping, v1alpha1.MigrationAdopting, v1alpha1.MigrationFinished:
		return Action{Kind: Done}
	case v1alpha1.MigrationReturning:
		return stop("this cluster is on its way back: run seamark migrate lighthouse back until it is done")
	case v1alpha1.MigrationShadow, v1alpha1.MigrationSwitched:
	}
	if a := joined(f); a.Kind != "" {
		return a
	}
	// After the switch Seamark's endpoints are used; before, all of them must be there.
	if f.Phase == v1alpha1.MigrationShadow {
		if missing := Missing(f.Services); len(missing) > 0 {
			return Action{Kind: Wait, Why: "Seamark's agent imports what Lighthouse has", More: missing}
		}
		return Action{Kind: SetPhase, Phase: v1alpha1.MigrationSwitched}
	}
	return dnsToSeamark(f, o)
}

// dnsToSeamark makes the operator leave the cluster's DNS alone, and then replaces the block.
func dnsToSeamark(f Facts, o Options) Action {
	unused := unusedDNS(f)
	switch {
	case f.Submariner.DiscoveryEnabled && f.Submariner.CustomDNS != unused:
		return Action{Kind: RedirectDNS}
	case f.Submariner.OperatorRunning && f.Submariner.DiscoveryExists && !f.Submariner.Redirected:
		return Action{Kind: Wait, Why: "Submariner's operator leaves the cluster's DNS alone"}
	case f.DNS.Unsupported != "" && !o.DNSChanged:
		return stop(fmt.Sprintf("Seamark does not change this cluster's DNS: %s. Make it forward clusterset.local to Service %s, "+
			"then run switch --dns-changed", f.DNS.Unsupported, dnsService))
	case f.DNS.Unsupported != "":
		return Action{Kind: Done}
	case f.DNS.Lighthouse || !f.DNS.Seamark:
		return Action{Kind: ReplaceDNS}
	}
	return Action{Kind: Done}
}

func finish(f Facts, o Options) Action {
	switch f.Phase {
	case v1alpha1.MigrationSwitched:
		return finishSwitched(f, o)
	case v1alpha1.MigrationStopping:
		return finishStopping(f)
	case v1alpha1.MigrationAdopting:
		return finishAdopting(f)
	case v1alpha1.MigrationFinished:
		return finishFinished(f, o)
	case v1alpha1.MigrationReturning:
		return stop("this cluster is on its way back: run seamark migrate lighthouse back until it is done, then switch again")
	case "", v1alpha1.MigrationShadow:
	}
	return stop("this cluster's DNS still uses Lighthouse: run seamark migrate lighthouse switch first")
}

func finishSwitched(f Facts, o Options) Action {
	if a := joined(f); a.Kind != "" {
		return a
	}
	o.DNSChanged = true // the user said so to switch
	if a := dnsToSeamark(f, o); a.Kind != Done {
		return stop("this cluster's DNS does not use Seamark: run seamark migrate lighthouse switch again")
	}
	// Clusters in shadow still read what Lighthouse's agent of this one publishes.
	behind := othersThat(f, o, func(phase v1alpha1.MigrationPhase, known bool) bool {
		return known && !isSwitched(phase) || !known && !o.OthersSwitched
	})
	if len(behind) > 0 {
		return Action{Kind: Stop, More: behind, Why: "clusters that have not switched would lose this cluster's services: switch them first. " +
			"Name their contexts with --others, or give --others-switched for those that this machine cannot reach"}
	}
	if missing := Missing(f.Services); len(missing) > 0 {
		return Action{Kind: Wait, Why: "Seamark's agent imports what Lighthouse has", More: missing}
	}
	if !o.DNSLoaded {
		return Action{Kind: Wait, Why: "the cluster's DNS server asks Lighthouse's no more: it loads a changed configuration within " +
			loadsDNS.String()}
	}
	return Action{Kind: SetPhase, Phase: v1alpha1.MigrationStopping}
}

// othersThat returns the other clusters of which is holds, each with its phase.
func othersThat(f Facts, o Options, is func(phase v1alpha1.MigrationPhase, known bool) bool) []string {
	var out []string
	for _, id := range f.Submariner.Clusters {
		if phase, known := o.Others[id]; id != f.Submariner.ClusterID && is(phase, known) {
			out = append(out, fmt.Sprintf("cluster %s: %s", id, describe(phase, known)))
		}
	}
	slices.Sort(out)
	return out
}

func isSwitched(phase v1alpha1.MigrationPhase) bool {
	switch phase {
	case v1alpha1.MigrationSwitched, v1alpha1.MigrationStopping, v1alpha1.MigrationAdopting, v1alpha1.MigrationFinished:
		return true
	case v1alpha1.MigrationShadow, v1alpha1.MigrationReturning:
	}
	return false
}

func describe(phase v1alpha1.MigrationPhase, known bool) string {
	switch {
	case !known:
		return "not looked at"
	case phase == "":
		return "not started"
	}
	return string(phase)
}

// finishStopping ends Lighthouse's agent. Its uninstall job, which the operator runs, would delete
// all ServiceImports of the cluster; the guard refuses that.
func finishStopping(f Facts) Action {
	switch {
	case f.Guard != GuardAll:
		return Action{Kind: SetGuard, Guard: GuardAll}
	case f.Submariner.DiscoveryEnabled:
		return Action{Kind: DisableAgent}
	case f.Submariner.DiscoveryExists && f.Submariner.OperatorRunning:
		return Action{Kind: Wait, Why: "Submariner's operator ends Lighthouse, which takes up to two minutes"}
	case f.Submariner.DiscoveryExists:
		return Action{Kind: EndDiscovery}
	case f.Submariner.AgentExists:
		return Action{Kind: Wait, Why: "the pods of Lighthouse's agent end"}
	}
	return Action{Kind: SetPhase, Phase: v1alpha1.MigrationAdopting}
}

func finishAdopting(f Facts) Action {
	if unadopted := Unadopted(f.Services); len(unadopted) > 0 {
		return Action{Kind: Wait, Why: "Seamark's agent takes over the ServiceImports", More: unadopted}
	}
	return Action{Kind: SetPhase, Phase: v1alpha1.MigrationFinished}
}

// finishFinished deletes what Lighthouse left here when no other cluster can go back to it. Before,
// it makes the way back short, and no client reads it.
func finishFinished(f Facts, o Options) Action {
	if hasLeftovers(f) && allFinished(f, o) {
		return Action{Kind: DeleteLeftover}
	}
	return Action{Kind: Done}
}

// allFinished reports whether all other clusters are known to have finished.
func allFinished(f Facts, o Options) bool {
	return !slices.ContainsFunc(f.Submariner.Clusters, func(id string) bool {
		return id != f.Submariner.ClusterID && o.Others[id] != v1alpha1.MigrationFinished
	})
}

func back(f Facts, o Options) Action {
	switch f.Phase {
	case "":
		if f.Guard != GuardNone {
			return Action{Kind: SetGuard, Guard: GuardNone}
		}
		return Action{Kind: Done}
	case v1alpha1.MigrationShadow:
		if f.Member != nil {
			return stop("this cluster is a member of a clusterset, and its agent would write the ServiceImports of Lighthouse: " +
				"run seamark leave, then back again")
		}
		return Action{Kind: RemovePhase}
	case v1alpha1.MigrationSwitched:
		return backFromSwitched(f, o)
	case v1alpha1.MigrationStopping, v1alpha1.MigrationAdopting, v1alpha1.MigrationFinished:
		return Action{Kind: SetPhase, Phase: v1alpha1.MigrationReturning}
	case v1alpha1.MigrationReturning:
	}
	return backReturning(f)
}

func backFromSwitched(f Facts, o Options) Action {
	// Lighthouse does not learn of changes in a cluster in which its agent has ended.
	if ended := othersThat(f, o, func(phase v1alpha1.MigrationPhase, known bool) bool {
		return known && phase != "" && phase != v1alpha1.MigrationShadow && phase != v1alpha1.MigrationSwitched
	}); len(ended) > 0 {
		return Action{Kind: Stop, More: ended, Why: "Lighthouse has ended in other clusters, and would not have their changes: " +
			"run seamark migrate lighthouse back there first, until they are in phase switched"}
	}
	if !f.Submariner.AgentRunning {
		return Action{Kind: Wait, Why: "Lighthouse's agent runs"}
	}
	if !f.Submariner.DNSRunning {
		return Action{Kind: Wait, Why: "Lighthouse's DNS server runs"}
	}
	if missing := MissingInLighthouse(f.Services); len(missing) > 0 {
		return Action{Kind: Wait, Why: "Lighthouse's agent imports what Seamark has", More: missing}
	}
	switch {
	case f.DNS.Unsupported != "" && !o.DNSChanged:
		return stop("make this cluster's DNS forward clusterset.local to Lighthouse's server again, then run back --dns-changed")
	case f.DNS.Unsupported == "" && (f.DNS.Seamark || !f.DNS.Lighthouse):
		return Action{Kind: RestoreDNS}
	case f.Submariner.CustomDNS == unusedDNS(f):
		return Action{Kind: UnredirectDNS}
	case f.Guard != GuardOwn:
		return Action{Kind: SetGuard, Guard: GuardOwn}
	}
	return Action{Kind: SetPhase, Phase: v1alpha1.MigrationShadow}
}

// backReturning starts Lighthouse's agent. At its start it withdraws what it does not find, and
// may delete ServiceImports that it publishes again a moment later. Agents of other clusters that
// return later do the same, so the guard stays until the cluster uses Lighthouse again.
func backReturning(f Facts) Action {
	managed := stillManaged(f.Services)
	switch {
	case f.Guard != GuardAll:
		return Action{Kind: SetGuard, Guard: GuardAll}
	case !f.Submariner.DiscoveryEnabled:
		return Action{Kind: EnableAgent}
	case !f.Submariner.AgentRunning && !f.Submariner.OperatorRunning:
		return stop("Submariner's operator does not run, and Lighthouse's agent cannot start without it: start the operator, then run back again")
	case !f.Submariner.AgentRunning:
		return Action{Kind: Wait, Why: "Submariner's operator starts Lighthouse's agent"}
	}
	// What other clusters have changed since they finished comes when they return.
	if missing := MissingInLighthouse(ofCluster(f.Services, f.Submariner.ClusterID)); len(missing) > 0 {
		return Action{Kind: Wait, Why: "Lighthouse's agent exports the services of this cluster again", More: missing}
	}
	if len(managed) > 0 {
		return Action{Kind: Wait, Why: "Lighthouse's agent takes the ServiceImports over", More: managed}
	}
	return Action{Kind: SetPhase, Phase: v1alpha1.MigrationSwitched}
}

// joined returns what is needed before Seamark can be used here, an empty action if nothing.
func joined(f Facts) Action {
	switch {
	case f.Member == nil:
		return stop("this cluster is not a member of a clusterset of Seamark: " + JoinCommand(f))
	case f.Member.ClusterID != f.Submariner.ClusterID:
		return stop("seamark migrate lighthouse check finds what blocks the move")
	case !f.Member.AgentRunning:
		return Action{Kind: Wait, Why: "seamark-agent runs"}
	case !f.Member.DNSRunning:
		return Action{Kind: Wait, Why: "seamark-dns runs"}
	}
	return Action{}
}

// JoinCommand returns how the cluster becomes a member.
func JoinCommand(f Facts) string {
	return fmt.Sprintf("seamark join --clusterid %s --broker-context BROKER, or with an invitation file", f.Submariner.ClusterID)
}

func unusedDNS(f Facts) ConfigMapRef {
	return ConfigMapRef{Namespace: f.Submariner.Namespace, Name: UnusedDNSConfigMap}
}

// UnusedDNSConfigMap is the ConfigMap to which Submariner's operator writes its forward block while
// Seamark answers the names. No DNS server reads it.
const UnusedDNSConfigMap = "seamark-unused-lighthouse-dns"

const dnsService = "seamark-system/seamark-dns"

func stop(why string) Action { return Action{Kind: Stop, Why: strings.TrimSpace(why)} }
