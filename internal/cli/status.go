package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

func newStatus(s *session) *cobra.Command {
	var (
		reach reachFlags
		watch watchFlags
		out   look
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clusterset at a glance: its clusters, and the services that need attention",
		Long: "status shows the clusters of a clusterset as their broker knows them (are they alive, what do they export) and the services that are in\n" +
			"conflict, stale or failing. It works in a member's context, with that member's own credential, in the broker's, or over several with\n" +
			"--contexts, which also shows what each imports. It changes nothing. Exit code 1 means that nothing could be learned.",
		Example: "  seamark status\n" +
			"  seamark status --contexts east,west --watch",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return watch.run(cmd.Context(), s, func(ctx context.Context, w io.Writer) error {
				sites, hub, err := s.reach(ctx, reach)
				if err != nil {
					return err
				}
				read := readStatus(ctx, sites, hub)
				state := assess(read)
				if err := out.print(w, state, func(w io.Writer) { tellStatus(w, state, read.now, out.wide, s.paint()) }); err != nil {
					return err
				}
				if state.Broker.Problem != "" && len(state.Clusters) == 0 {
					return fmt.Errorf("nothing could be learned: %s", state.Broker.Problem)
				}
				return nil
			})
		},
	}
	cmd.Flags().SortFlags = false
	reach.add(s, cmd)
	watch.add(cmd)
	addLook(cmd, &out)
	return cmd
}

// status is the clusterset at a glance.
type status struct {
	ClusterSet string         `json:"clusterSet"`
	Broker     brokerStatus   `json:"broker"`
	Clusters   []memberStatus `json:"clusters"`
	// Services is how many there are; Attention those that need some.
	Services  int             `json:"services"`
	Attention []serviceStatus `json:"attention"`
}

type brokerStatus struct {
	Server string `json:"server,omitempty"`
	Via    string `json:"via,omitempty"`
	// Problem is why the broker could not be asked.
	Problem string `json:"problem,omitempty"`
}

// Lives of a member.
const (
	lifeAlive   = "alive"
	lifeSilent  = "silent"
	lifeInvited = "invited"
	lifeUnknown = "unknown"
)

type memberStatus struct {
	ID string `json:"id"`
	// State is alive, silent (its heartbeat stopped), invited (it never joined) or unknown (the broker was not asked).
	State         string     `json:"state"`
	LastHeartbeat *time.Time `json:"lastHeartbeat,omitempty"`
	AgentVersion  string     `json:"agentVersion,omitempty"`
	DataPlane     string     `json:"dataPlane,omitempty"`
	Exports       int        `json:"exports"`
	// Imports is nil for a cluster that was not looked into: the broker does not know.
	Imports        *int     `json:"imports,omitempty"`
	Endpoints      int      `json:"endpoints"`
	ReadyEndpoints int      `json:"readyEndpoints"`
	Blocks         []string `json:"clusterSetIPBlocks"`
	Namespaces     []string `json:"allowedNamespaces"`
	Context        string   `json:"context,omitempty"`
	// Problem is why the cluster could not be looked into.
	Problem string `json:"problem,omitempty"`
}

// States of services that need attention.
const (
	serviceFailing  = "failing"
	serviceStale    = "stale"
	serviceConflict = "conflict"
)

type serviceStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is failing, stale or conflict.
	State string `json:"state"`
	// Cluster is where, when it is not the whole service.
	Cluster string `json:"cluster,omitempty"`
	Why     string `json:"why"`
}

func tellStatus(w io.Writer, st status, now time.Time, wide bool, paint explain.Paint) {
	if st.ClusterSet != "" {
		fmt.Fprintf(w, "Clusterset %s, broker %s (asked as %s)\n", st.ClusterSet, st.Broker.Server, st.Broker.Via)
	}
	if st.Broker.Problem != "" {
		fmt.Fprintf(w, "%s the broker could not be asked: %s\n", paint(explain.Fail, "FAIL"), st.Broker.Problem)
	}
	fmt.Fprintln(w)
	tellClusters(w, st.Clusters, now, wide, paint)
	if len(st.Attention) == 0 {
		if st.Broker.Problem == "" {
			fmt.Fprintf(w, "\n%s\n", paint(good, plural(st.Services, "service")+" published; none needs attention."))
		}
		return
	}
	fmt.Fprintf(w, "\n%s published; %s (seamark explain NAME -n NAMESPACE tells more):\n\n", plural(st.Services, "service"), needing(attentive(st.Attention)))
	rows := make([][]string, len(st.Attention))
	for i, a := range st.Attention {
		why := a.Why
		if !wide {
			why = shorten(why, 110)
		}
		rows[i] = []string{a.Namespace + "/" + a.Name, orDash(a.Cluster), strings.ToUpper(a.State), why}
	}
	writeTable(w, []string{"SERVICE", "CLUSTER", "STATE", "WHY"}, rows)
}

func needing(n int) string {
	if n == 1 {
		return "1 needs attention"
	}
	return fmt.Sprintf("%d need attention", n)
}

// attentive counts services, not their problems.
func attentive(all []serviceStatus) int {
	seen := map[string]bool{}
	for _, a := range all {
		seen[a.Namespace+"/"+a.Name] = true
	}
	return len(seen)
}

func tellClusters(w io.Writer, clusters []memberStatus, now time.Time, wide bool, paint explain.Paint) {
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
		state := paint(map[string]explain.Severity{lifeAlive: good, lifeSilent: explain.Fail, lifeInvited: explain.Note, lifeUnknown: explain.Warn}[c.State], c.State)
		if c.Problem != "" {
			state += ", cannot be looked into: " + shorten(c.Problem, 80)
		}
		heartbeat, endpoints := ageOf(c.LastHeartbeat, now), fmt.Sprintf("%d of %d", c.ReadyEndpoints, c.Endpoints)
		if c.State == lifeUnknown {
			heartbeat, endpoints = "-", "-"
		}
		if wide {
			rows[i] = []string{c.ID, orDash(c.Context), heartbeat, orDash(c.AgentVersion), orDash(c.DataPlane), fmt.Sprint(c.Exports), imports, endpoints,
				orDash(strings.Join(c.Blocks, ",")), shortNamespaces(c.Namespaces), state}
			continue
		}
		rows[i] = []string{c.ID, heartbeat, orDash(c.AgentVersion), orDash(c.DataPlane), fmt.Sprint(c.Exports), imports, endpoints, state}
	}
	writeTable(w, head, rows)
}

func ageOf(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return duration.HumanDuration(max(0, now.Sub(*t))) + " ago"
}

// shorten cuts a text at a word, so that a row stays a row.
func shorten(text string, limit int) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if len(text) <= limit {
		return text
	}
	cut := strings.LastIndex(text[:limit], " ")
	if cut < limit/2 {
		cut = limit
	}
	return strings.ToValidUTF8(text[:cut], "") + "…"
}
