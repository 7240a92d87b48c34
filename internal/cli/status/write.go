package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Write writes the report as text. Ages are those at now; wide adds columns and does not shorten.
func Write(w io.Writer, r Report, now time.Time, wide bool, paint explain.Paint) {
	if r.ClusterSet != "" {
		fmt.Fprintf(w, "Clusterset %s, broker %s (asked as %s)\n", r.ClusterSet, r.Broker.Server, r.Broker.Via)
	}
	if r.Broker.Problem != "" {
		fmt.Fprintf(w, "%s the broker could not be asked: %s\n", paint(explain.Fail, "FAIL"), r.Broker.Problem)
	}
	fmt.Fprintln(w)
	WriteMembers(w, r.Clusters, now, wide, paint)
	if len(r.Reachability) > 0 {
		fmt.Fprintln(w)
		writePaths(w, r.Reachability, now, paint)
	}
	if len(r.Attention) == 0 {
		if r.Broker.Problem == "" {
			fmt.Fprintf(w, "\n%s\n", paint(explain.Good, text.Plural(r.Services, "service")+" published; none needs attention."))
		}
		return
	}
	fmt.Fprintf(w, "\n%s published; %s (see why: seamark explain NAME -n NAMESPACE):\n\n",
		text.Plural(r.Services, "service"), needAttention(r.Attention))
	rows := make([][]string, len(r.Attention))
	for i, a := range r.Attention {
		why := a.Why
		if !wide {
			why = text.Shorten(why, 110)
		}
		rows[i] = []string{a.Namespace + "/" + a.Name, text.OrDash(a.Cluster), strings.ToUpper(string(a.State)), why}
	}
	text.Table(w, []string{"SERVICE", "CLUSTER", "STATE", "WHY"}, rows)
}

// reachSeverities are the colours of the states of paths.
var reachSeverities = map[objects.ReachState]explain.Severity{
	objects.Reachable: explain.Good, objects.SilentButServing: explain.Warn, objects.Unreachable: explain.Fail,
	objects.ReachabilityUnknown: explain.Note,
}

// reachReasons say why a path is in its state.
var reachReasons = map[objects.ReachReason]string{
	objects.ReachNoBeacons:       "it publishes no beacon in this family",
	objects.ReachRefused:         "its beacons have addresses that it may not publish",
	objects.ReachNeverAnswered:   "none of its beacons has answered: is UDP port " + strconv.Itoa(wire.Port) + " open?",
	objects.ReachBeaconsAnswer:   "its beacons answer",
	objects.ReachEndpointsAnswer: "its beacons do not answer, but its endpoints do",
	objects.ReachNoAnswer:        "neither its beacons nor the endpoints that were tried answer any more",
	objects.ReachNotSteady:       "it answers again, but not steadily for long enough",
}

// Why returns why a path is in its state, in words.
func (p *Path) Why() string { return reachReasons[p.Reason] }

// writePaths writes the table of who reaches whom.
func writePaths(w io.Writer, paths []Path, now time.Time, paint explain.Paint) {
	rows := make([][]string, len(paths))
	for i, p := range paths {
		latency := "-"
		if p.Latency > 0 {
			latency = fmt.Sprintf("%.1f ms", p.Latency*1000)
		}
		rows[i] = []string{p.From, p.Cluster, string(p.Family), text.Ago(&p.Since, now), latency, fmt.Sprintf("%d of %d", p.Answering, p.Beacons),
			paint(reachSeverities[p.State], string(p.State)), p.Why()}
	}
	text.Table(w, []string{"FROM", "TO", "FAMILY", "SINCE", "LATENCY", "BEACONS", "STATE", "WHY"}, rows)
}

// needAttention counts the services that need attention; a service may have several problems.
func needAttention(problems []Service) string {
	services := map[types.NamespacedName]bool{}
	for _, p := range problems {
		services[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
	}
	if len(services) == 1 {
		return "1 needs attention"
	}
	return fmt.Sprintf("%d need attention", len(services))
}

// severities are the colours of the states of members.
var severities = map[MemberState]explain.Severity{Alive: explain.Good, Silent: explain.Fail, Invited: explain.Note, Unknown: explain.Warn}

// WriteMembers writes the table of members.
func WriteMembers(w io.Writer, clusters []Member, now time.Time, wide bool, paint explain.Paint) {
	if len(clusters) == 0 {
		fmt.Fprintln(w, "No clusters yet. Next: seamark broker invite ID")
		return
	}
	head := []string{"CLUSTER", "HEARTBEAT", "AGENT", "DATA PLANE", "EXPORTS", "IMPORTS", "ENDPOINTS", "STATE"}
	if wide {
		head = []string{"CLUSTER", "CONTEXT", "HEARTBEAT", "AGENT", "DATA PLANE", "EXPORTS", "IMPORTS", "ENDPOINTS",
			"BLOCKS", "NAMESPACES", "STATE"}
	}
	rows := make([][]string, len(clusters))
	for i, c := range clusters {
		imports := "-"
		if c.Imports != nil {
			imports = fmt.Sprint(*c.Imports)
		}
		state := paint(severities[c.State], string(c.State))
		if c.Problem != "" {
			state += ", cannot be looked into: " + text.Shorten(c.Problem, 80)
		}
		heartbeat, endpoints := text.Ago(c.LastHeartbeat, now), fmt.Sprintf("%d of %d", c.ReadyEndpoints, c.Endpoints)
		if c.State == Unknown {
			heartbeat, endpoints = "-", "-"
		}
		row := []string{heartbeat, text.OrDash(c.AgentVersion), text.OrDash(c.DataPlane), fmt.Sprint(c.Exports), imports, endpoints}
		if wide {
			row = append([]string{text.OrDash(c.Context)}, row...)
			row = append(row, text.OrDash(strings.Join(c.Blocks, ",")), text.Namespaces(c.Namespaces))
		}
		rows[i] = append(append([]string{c.ID}, row...), state)
	}
	text.Table(w, head, rows)
}
