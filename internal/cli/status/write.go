package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

func Write(w io.Writer, st Report, now time.Time, wide bool, paint explain.Paint) {
	if st.ClusterSet != "" {
		fmt.Fprintf(w, "Clusterset %s, broker %s (asked as %s)\n", st.ClusterSet, st.Broker.Server, st.Broker.Via)
	}
	if st.Broker.Problem != "" {
		fmt.Fprintf(w, "%s the broker could not be asked: %s\n", paint(explain.Fail, "FAIL"), st.Broker.Problem)
	}
	fmt.Fprintln(w)
	WriteMembers(w, st.Clusters, now, wide, paint)
	if len(st.Attention) == 0 {
		if st.Broker.Problem == "" {
			fmt.Fprintf(w, "\n%s\n", paint(explain.Good, text.Plural(st.Services, "service")+" published; none needs attention."))
		}
		return
	}
	fmt.Fprintf(w, "\n%s published; %s (seamark explain NAME -n NAMESPACE tells more):\n\n", text.Plural(st.Services, "service"), needing(attentive(st.Attention)))
	rows := make([][]string, len(st.Attention))
	for i, a := range st.Attention {
		why := a.Why
		if !wide {
			why = text.Shorten(why, 110)
		}
		rows[i] = []string{a.Namespace + "/" + a.Name, text.OrDash(a.Cluster), strings.ToUpper(a.State), why}
	}
	text.Table(w, []string{"SERVICE", "CLUSTER", "STATE", "WHY"}, rows)
}

func needing(n int) string {
	if n == 1 {
		return "1 needs attention"
	}
	return fmt.Sprintf("%d need attention", n)
}

// attentive counts services, not their problems.
func attentive(all []Service) int {
	seen := map[string]bool{}
	for _, a := range all {
		seen[a.Namespace+"/"+a.Name] = true
	}
	return len(seen)
}

func WriteMembers(w io.Writer, clusters []Member, now time.Time, wide bool, paint explain.Paint) {
	if len(clusters) == 0 {
		fmt.Fprintln(w, "No clusters yet. Next: seamark broker invite ID")
		return
	}
	head := []string{"CLUSTER", "HEARTBEAT", "AGENT", "DATA PLANE", "EXPORTS", "IMPORTS", "ENDPOINTS", "STATE"}
	if wide {
		head = []string{"CLUSTER", "CONTEXT", "HEARTBEAT", "AGENT", "DATA PLANE", "EXPORTS", "IMPORTS", "ENDPOINTS", "BLOCKS", "NAMESPACES", "STATE"}
	}
	rows := make([][]string, len(clusters))
	for i, c := range clusters {
		imports := "-"
		if c.Imports != nil {
			imports = fmt.Sprint(*c.Imports)
		}
		state := paint(map[string]explain.Severity{Alive: explain.Good, Silent: explain.Fail, Invited: explain.Note, Unknown: explain.Warn}[c.State], c.State)
		if c.Problem != "" {
			state += ", cannot be looked into: " + text.Shorten(c.Problem, 80)
		}
		heartbeat, endpoints := text.Ago(c.LastHeartbeat, now), fmt.Sprintf("%d of %d", c.ReadyEndpoints, c.Endpoints)
		if c.State == Unknown {
			heartbeat, endpoints = "-", "-"
		}
		if wide {
			rows[i] = []string{c.ID, text.OrDash(c.Context), heartbeat, text.OrDash(c.AgentVersion), text.OrDash(c.DataPlane), fmt.Sprint(c.Exports), imports, endpoints,
				text.OrDash(strings.Join(c.Blocks, ",")), text.Namespaces(c.Namespaces), state}
			continue
		}
		rows[i] = []string{c.ID, heartbeat, text.OrDash(c.AgentVersion), text.OrDash(c.DataPlane), fmt.Sprint(c.Exports), imports, endpoints, state}
	}
	text.Table(w, head, rows)
}
