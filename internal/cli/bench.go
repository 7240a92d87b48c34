package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/bench"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

func newBench(s *session) *cobra.Command {
	var (
		from, to string
		options  bench.Options
		out      format
	)
	cmd := &cobra.Command{
		Use:   "bench --from CONTEXT --to CONTEXT",
		Short: "Measure how long changes take from one cluster to another",
		Long: "bench creates a namespace with services of its own in two clusters, exports them one after another, and measures\n" +
			"how long it takes until the other cluster can use each: until its ServiceImport has a clusterset IP and its slices\n" +
			"have a ready endpoint, and with the data plane service until the derived Service exists. Then it measures until a\n" +
			"changed endpoint is in the other cluster, and after the unexport until ServiceImport, slices and derived Service\n" +
			"are gone. With --dns it also measures until the name resolves, and how many queries a second are answered.\n" +
			"It deletes the namespace at the end. Times are measured here, so they include the way to both API servers.",
		Example: "  seamark bench --from east --to west\n" +
			"  seamark bench --from east --to west --rounds 50 --dns 10.96.0.53:53",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" || to == "" || from == to {
				return usagef("give two different contexts with --from and --to")
			}
			if options.Rounds < 1 || options.Rounds > 1000 {
				return usagef("--rounds must be 1 to 1000, not %d", options.Rounds)
			}
			source, err := s.connectContext(from)
			if err != nil {
				return err
			}
			target, err := s.connectContext(to)
			if err != nil {
				return err
			}
			options.From, options.To = source.Config, target.Config
			options.Zone = survey.Zone(cmd.Context(), target.Client)
			options.Progress = func(line string) { fmt.Fprintln(s.ErrOut, line) }
			result, err := bench.Run(cmd.Context(), options)
			if err != nil {
				return err
			}
			return out.print(s.Out, result, func(w io.Writer) { printBench(w, from, to, result) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&from, "from", "", "context of the cluster that exports")
	flags.StringVar(&to, "to", "", "context of the cluster that imports")
	flags.IntVar(&options.Rounds, "rounds", 20, "how many services, one after another")
	flags.DurationVar(&options.Timeout, "timeout", 30*time.Second, "how long one step may take")
	flags.StringVar(&options.DNS, "dns", "", "address of a seamark-dns of the importing cluster, reachable from here, to measure DNS too")
	addOutput(cmd, &out)
	return cmd
}

func printBench(w io.Writer, from, to string, r bench.Result) {
	fmt.Fprintf(w, "%s, from %s to %s, one after another:\n", text.Plural(r.Rounds, "service"), from, to)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  FROM → TO\tP50\tP99\tMAX")
	for _, m := range r.Measured {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", m.Name, round(m.P50), round(m.P99), round(m.Max))
	}
	_ = table.Flush() // an error of w shows in the next write
	if r.QueriesPerSecond > 0 {
		fmt.Fprintf(w, "  A client that sends one query at a time gets %.0f answers a second.\n", r.QueriesPerSecond)
	}
}

func round(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
