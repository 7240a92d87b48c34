package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

func newDoctor(s *session) *cobra.Command {
	var (
		contexts contextFlags
		options  survey.FactOptions
		dns      []string
		quiet    bool
		out      format
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a cluster and its broker, and say how to repair what is wrong",
		Long: "doctor checks a cluster and its broker: CRDs and permissions, credentials, clocks, heartbeats, workloads, DNS\n" +
			"and its forwarding, address ranges, the data plane. Each check passes, warns or fails, and says what to do, or\n" +
			"is skipped, and says why. It changes nothing; with --probe-image it runs a short-lived pod that tries to reach\n" +
			"pods of other clusters.\n\n" +
			"Exit code 1 means that a check failed.",
		Example: "  seamark doctor --context east\n" +
			"  seamark doctor --contexts east,west --probe-image busybox:1.37",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if options.Servers, err = parseServers(dns); err != nil {
				return err
			}
			clusters, broker, err := s.survey(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			report := doctor.Examine(survey.ReadFacts(cmd.Context(), clusters, broker, options))
			if err := out.print(s.Out, report, func(w io.Writer) { doctor.Write(w, report, quiet, s.paint()) }); err != nil {
				return err
			}
			if report.Failed > 0 {
				return fmt.Errorf("%s failed", text.Plural(report.Failed, "check"))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	contexts.add(s, cmd)
	addServers(cmd, &dns)
	flags.StringVar(&options.ProbeImage, "probe-image", "",
		"image with sh and nc for a pod that tries to reach pods of other clusters (default: not tried)")
	flags.BoolVarP(&quiet, "quiet", "q", false, "show only what needs attention")
	addOutput(cmd, &out)
	return cmd
}
