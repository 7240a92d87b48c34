package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/migrate"
)

// migrateTimeout is longer than the two minutes that Submariner's operator may take to end
// Lighthouse, and what CoreDNS may take before.
const migrateTimeout = 10 * time.Minute

func newMigrate(s *session) *cobra.Command {
	lighthouse := group("lighthouse", "Move this cluster from Submariner Lighthouse, step by step and without a gap",
		newMigrateCheck(s), newMigrateStart(s), newMigrateStatus(s), newMigrateSwitch(s), newMigrateFinish(s), newMigrateBack(s),
		newMigrateBridge(s))
	lighthouse.Long = "A clusterset of Submariner Lighthouse 0.24 moves in three steps, each in all clusters before the next:\n" +
		"start (and seamark join), switch, finish. check comes first and finds what would break; status shows how far a\n" +
		"cluster is and what is next; back undoes the last step. Commands can be interrupted and run again. Where clusters\n" +
		"stay mixed for weeks, bridge connects those that run Lighthouse only and those that run Seamark only."
	return group("migrate", "Move this cluster from another implementation to Seamark", lighthouse)
}

// checked is what check prints.
type checked struct {
	Findings []migrate.Finding `json:"findings"`
	Blocked  bool              `json:"blocked"`
}

func newMigrateCheck(s *session) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find what would break or change in a move, and say the cure",
		Long: "check reads a cluster that runs Submariner Lighthouse and finds what blocks the move to Seamark, and what changes\n" +
			"for users. It changes nothing. Exit code 1 means that something blocks the move.",
		Example: "  seamark migrate lighthouse check --context east",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := s.connect()
			if err != nil {
				return err
			}
			facts, err := migrate.Read(cmd.Context(), local.Client)
			if err != nil {
				return err
			}
			result := checked{Findings: migrate.Check(facts)}
			result.Blocked = migrate.Blocking(result.Findings)
			if result.Findings == nil {
				result.Findings = []migrate.Finding{}
			}
			if err := out.print(s.Out, result, func(w io.Writer) { printFindings(w, result.Findings) }); err != nil {
				return err
			}
			if result.Blocked {
				return errors.New("the move is blocked: cure what blocks it, then check again")
			}
			return nil
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func printFindings(w io.Writer, findings []migrate.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s %s: %s\n  cure: %s\n", f.Severity, f.Code, f.Detail, f.Fix)
	}
	if !migrate.Blocking(findings) {
		fmt.Fprintln(w, "Nothing blocks the move. Next: seamark migrate lighthouse start")
	}
}

// migrateFlags are the flags of the commands that change something.
type migrateFlags struct {
	options migrate.Options
	others  []string
	timeout time.Duration
	out     format
}

func (f *migrateFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.timeout, "timeout", migrateTimeout, "how long to wait for what the agents and Submariner's operator do")
	addOutput(cmd, &f.out)
}

func (f *migrateFlags) addDNSChanged(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.options.DNSChanged, "dns-changed", false, "you have changed the cluster's DNS yourself, where Seamark cannot")
}

func (f *migrateFlags) addOthers(s *session, cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.others, "others", nil, "contexts of the other clusters of the clusterset, to look how far they are")
	if err := cmd.RegisterFlagCompletionFunc("others", s.completeContexts); err != nil {
		panic(err) // the flag is defined above
	}
}

// run brings the cluster to a goal and prints what was done.
func (f *migrateFlags) run(ctx context.Context, s *session, goal migrate.Goal) error {
	local, err := s.connect()
	if err != nil {
		return err
	}
	if f.options.Others, err = s.phases(ctx, f.others); err != nil {
		return err
	}
	progress := migrate.Progress{
		Changed: func(sentence string) {
			if f.out == asText { // as it happens; otherwise the result has them
				fmt.Fprintln(s.Out, sentence)
			}
		},
		Waiting: func(until string) { fmt.Fprintf(s.ErrOut, "waiting until %s\n", until) },
	}
	result, err := migrate.Run(ctx, local.Client, goal, f.options, f.timeout, progress)
	if err != nil {
		return err
	}
	return f.out.print(s.Out, result, func(w io.Writer) {
		if len(result.Steps) == 0 {
			fmt.Fprintln(w, "Nothing to do.")
		}
		lines := []field{{"phase", phaseText(result.Phase)}, {"next", result.Next}}
		if result.Back != "" {
			lines = append(lines, field{"to go back", result.Back})
		}
		details(w, lines...)
	})
}

// phases reads how far other clusters are, by their id in Submariner.
func (s *session) phases(ctx context.Context, contexts []string) (map[string]v1alpha1.MigrationPhase, error) {
	out := map[string]v1alpha1.MigrationPhase{}
	for _, name := range contexts {
		c, err := s.connectContext(name)
		if err != nil {
			return nil, err
		}
		id, phase, err := migrate.ReadPhase(ctx, c.Client)
		if err != nil {
			return nil, fmt.Errorf("context %s: %w", name, err)
		}
		if id == "" {
			return nil, fmt.Errorf("context %s: the cluster has no Submariner resource", name)
		}
		out[id] = phase
	}
	return out, nil
}

func phaseText(p v1alpha1.MigrationPhase) string {
	if p == "" {
		return "not started"
	}
	return string(p)
}

func newMigrateStart(s *session) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Prepare this cluster, so that Seamark can run beside Lighthouse",
		Long: "start prepares a cluster that runs Submariner Lighthouse: CRDs that both can use, an admission policy that\n" +
			"protects what Seamark manages, and phase shadow, in which Seamark's agent leaves Lighthouse's objects alone. Then\n" +
			"make the cluster a member with seamark join. Clients notice nothing: Lighthouse serves them until switch.",
		Example: "  seamark migrate lighthouse start --context east",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s, migrate.Start) },
	}
	f.add(cmd)
	return cmd
}

func newMigrateSwitch(s *session) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Let this cluster's DNS use Seamark",
		Long: "switch waits until Seamark has every endpoint that Lighthouse has here, makes Submariner's operator leave the\n" +
			"cluster's DNS alone, and moves clusterset.local from Lighthouse's DNS server to seamark-dns in one write.\n" +
			"Lighthouse's agent goes on, for clusters that have not switched and for the way back.",
		Example: "  seamark migrate lighthouse switch --context east",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s, migrate.Switch) },
	}
	f.addDNSChanged(cmd)
	f.add(cmd)
	return cmd
}

func newMigrateFinish(s *session) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "End Lighthouse in this cluster; Seamark takes over its ServiceImports",
		Long: "finish ends Lighthouse's agent and DNS server in this cluster, and lets Seamark's agent take over the ServiceImports\n" +
			"in place. Submariner's tunnels stay. All clusters must have switched: one in phase shadow would lose the services\n" +
			"of this cluster. Run once more when all clusters have finished, it deletes what Lighthouse left here.",
		Example: "  seamark migrate lighthouse finish --context east --others west,north",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s, migrate.Finish) },
	}
	f.addOthers(s, cmd)
	cmd.Flags().BoolVar(&f.options.OthersSwitched, "others-switched", false, "the clusters that --others does not name have switched")
	f.add(cmd)
	return cmd
}

func newMigrateBack(s *session) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "back",
		Short: "Undo the last of finish, switch and start",
		Long: "back undoes one command: after finish it starts Lighthouse again, after switch it waits until Lighthouse has all\n" +
			"endpoints and moves clusterset.local back to its DNS server, and after start, when the cluster has left Seamark's\n" +
			"clusterset, it removes what start installed. CRDs stay. A switch can be undone only while Lighthouse runs in all\n" +
			"clusters: take finish back in those that have finished first.",
		Example: "  seamark migrate lighthouse back --context east --others west,north",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s, migrate.Back) },
	}
	f.addOthers(s, cmd)
	f.addDNSChanged(cmd)
	f.add(cmd)
	return cmd
}

// moving is what status prints.
type moving struct {
	Phase     v1alpha1.MigrationPhase            `json:"phase"`
	ClusterID string                             `json:"clusterID"`
	Clusters  map[string]v1alpha1.MigrationPhase `json:"clusters"`
	Services  int                                `json:"services"`
	// Missing is what Seamark lacks of the services here.
	Missing []string `json:"missing"`
	// DNS is Lighthouse or Seamark, or why it is neither or unknown.
	DNS string `json:"dns"`
	// Adopted is how many ServiceImports Seamark manages.
	Adopted int `json:"adopted"`
	// Next is what to do next.
	Next string `json:"next"`
}

func newMigrateStatus(s *session) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show how far this cluster and others have moved",
		Long:    "status shows the phase, whether Seamark has all endpoints that Lighthouse has here, and which of them the DNS uses.",
		Example: "  seamark migrate lighthouse status --context east --others west,north",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := s.connect()
			if err != nil {
				return err
			}
			facts, err := migrate.Read(cmd.Context(), local.Client)
			if err != nil {
				return err
			}
			if facts.Submariner == nil {
				return errors.New("this cluster has no Submariner resource: there is nothing to move")
			}
			result := statusOf(facts)
			if result.Clusters, err = s.phases(cmd.Context(), f.others); err != nil {
				return err
			}
			return f.out.print(s.Out, result, func(w io.Writer) { printMoving(w, result, facts.Submariner.Clusters) })
		},
	}
	f.addOthers(s, cmd)
	addOutput(cmd, &f.out)
	return cmd
}

func statusOf(f migrate.Facts) moving {
	m := moving{Phase: f.Phase, ClusterID: f.Submariner.ClusterID, Missing: migrate.Missing(f.Services), DNS: f.DNS.String(), Next: migrate.Next(f)}
	if m.Missing == nil {
		m.Missing = []string{}
	}
	for _, service := range f.Services {
		if service.Imported {
			m.Services++
		}
		if service.Managed {
			m.Adopted++
		}
	}
	return m
}

func printMoving(w io.Writer, m moving, all []string) {
	fmt.Fprintf(w, "Cluster %s: phase %s.\n", m.ClusterID, phaseText(m.Phase))
	missing := "nothing that Lighthouse has here"
	if len(m.Missing) > 0 {
		missing = text.Plural(len(m.Missing), "group") + " of endpoints, as listed below"
	}
	details(w, field{"services", fmt.Sprintf("%d imported, Seamark manages %d", m.Services, m.Adopted)},
		field{"Seamark lacks", missing}, field{"cluster DNS uses", m.DNS})
	for _, line := range m.Missing {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, id := range all {
		if id == m.ClusterID {
			continue
		}
		phase, known := m.Clusters[id]
		line := "not looked at: name its context with --others"
		if known {
			line = "phase " + phaseText(phase)
		}
		fmt.Fprintf(w, "Cluster %s: %s.\n", id, line)
	}
	fmt.Fprintf(w, "Next: %s\n", m.Next)
}
