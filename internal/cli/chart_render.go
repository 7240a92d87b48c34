package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newChartRender(s *session) *cobra.Command {
	var (
		options    chart.RenderOptions
		invitation string
		files, set []string
	)
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print what the chart installs, as manifests",
		Long: "render prints what the chart of this version installs in a member: its CRDs, its namespace and its objects. It\n" +
			"needs neither helm nor a cluster. Apply it with kubectl apply --server-side, or hand it to a GitOps tool. The same\n" +
			"values give the same text.",
		Example: "  seamark chart render | kubectl apply --server-side -f -\n" +
			"  seamark chart render --set dataPlane=nftables -f values.yaml >seamark.yaml",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			values, err := readValues(files, set)
			if err != nil {
				return err
			}
			if invitation != "" {
				m, err := s.readInvitation(invitation)
				if err != nil {
					return err
				}
				if values["invitation"], err = invitationValue(m); err != nil {
					return err
				}
			}
			manifests, err := chart.RenderAll(values, options)
			if err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprint(s.Out, manifests)
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&files, "values", "f", nil, "file with values of the chart (can be repeated)")
	flags.StringArrayVar(&set, "set", nil, "value of the chart as KEY=VALUE, like helm's (can be repeated; see docs/install.md)")
	flags.StringVar(&invitation, "invitation", "",
		"file of seamark broker invite, whose credential is then part of what is printed (default: apply the invitation apart from it)")
	flags.BoolVar(&options.SkipCRDs, "skip-crds", false, "leave out the CRDs")
	flags.BoolVar(&options.SkipNamespace, "skip-namespace", false, "leave out the namespace")
	return cmd
}

// readValues reads values of the chart as helm does: later files win, and KEY=VALUE wins over
// files.
func readValues(files, set []string) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the values: %w", err)
		}
		more := map[string]any{}
		if err := yaml.Unmarshal(text, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		values = loader.MergeMaps(values, more)
	}
	return values, parseSet(set, values)
}

// parseSet reads KEY=VALUE into values.
func parseSet(set []string, values map[string]any) error {
	for _, text := range set {
		if err := strvals.ParseInto(text, values); err != nil {
			return usagef("--set %s: %w: write it as KEY=VALUE", text, err)
		}
	}
	return nil
}

// invitationValue returns an invitation as the value of the chart.
func invitationValue(m objects.Membership) (map[string]any, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the invitation: %w", err)
	}
	value := map[string]any{}
	return value, json.Unmarshal(text, &value)
}
