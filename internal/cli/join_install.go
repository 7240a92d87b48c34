package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
)

// readyTimeout is how long join waits for the workloads: pulling an image may take minutes.
const readyTimeout = 5 * time.Minute

// installFlags are the flags of join for the workloads.
type installFlags struct {
	image            string
	set              []string
	createNamespaces bool
	noInstall        bool
	noDNS            bool
	noWait           bool
	timeout          time.Duration
}

func (f *installFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "",
		"image of the workloads, as REPOSITORY or REPOSITORY:TAG (default seamark.dev/seamark:VERSION, or the previous one)")
	flags.BoolVar(&f.createNamespaces, "create-namespaces", false,
		"create missing namespaces for imported services instead of not importing them")
	flags.StringArrayVar(&f.set, "set", nil, "value of the chart as KEY=VALUE, like helm's (can be repeated; see docs/install.md)")
	flags.BoolVar(&f.noDNS, "no-dns", false, "do not change the cluster's DNS, also not by the agent (stays until --no-dns=false)")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait until the workloads are ready")
	flags.DurationVar(&f.timeout, "timeout", readyTimeout, "how long to wait until the workloads are ready")
	flags.BoolVar(&f.noInstall, "no-install", false, "only make the cluster a member: run the agent yourself, or install the chart with helm")
}

// check fails on flags that contradict each other and on values that the chart does not accept,
// before anything is written.
func (f *installFlags) check(cmd *cobra.Command, dataPlane v1alpha1.DataPlane) error {
	if f.noInstall {
		for _, flag := range []string{"image", "set", "create-namespaces", "no-dns", "no-wait", "timeout"} {
			if cmd.Flags().Changed(flag) {
				return usagef("--%s is for the workloads, which --no-install does not install", flag)
			}
		}
		return nil
	}
	values, err := f.values(cmd, dataPlane)
	if err != nil {
		return err
	}
	if _, err := chart.Render(values); err != nil {
		return usageError{err}
	}
	return nil
}

// values returns the values of the chart that the flags choose. Specific flags win over --set.
func (f *installFlags) values(cmd *cobra.Command, dataPlane v1alpha1.DataPlane) (map[string]any, error) {
	values := map[string]any{}
	if err := parseSet(f.set, values); err != nil {
		return nil, err
	}
	if chosen, ok := values["dataPlane"]; ok && chosen != string(dataPlane) {
		return nil, usagef("choose the data plane with --dataplane: it is stored in the membership too")
	}
	if dataPlane != "" {
		values["dataPlane"] = string(dataPlane)
	}
	if cmd.Flags().Changed("create-namespaces") {
		values["createNamespaces"] = f.createNamespaces
	}
	if cmd.Flags().Changed("no-dns") {
		values["clusterDNS"] = map[string]any{"configure": !f.noDNS}
	}
	if f.image == "" {
		return values, nil
	}
	repository, tag, err := splitImage(f.image)
	if err != nil {
		return nil, err
	}
	image, ok := values["image"].(map[string]any)
	if !ok {
		image = map[string]any{}
	}
	image["repository"], image["tag"] = repository, tag
	values["image"] = image
	return values, nil
}

// splitImage splits an image into repository and tag. A colon before the last slash belongs to the
// port of the registry. An empty tag stands for the version of the chart.
func splitImage(image string) (repository, tag string, err error) {
	if strings.Contains(image, "@") {
		return "", "", usagef("--image %s: give a tag, not a digest", image)
	}
	slash, colon := strings.LastIndex(image, "/"), strings.LastIndex(image, ":")
	if colon <= slash {
		return image, "", nil
	}
	return image[:colon], image[colon+1:], nil
}

// adapt sets the values that depend on the cluster and that the user did not choose, and the pod
// security standard of the namespace. A note on standard error says what was turned off.
func adapt(ctx context.Context, s *session, local survey.Connection, values map[string]any) (map[string]any, error) {
	if beside, err := crds.HasSubmariner(ctx, local.Client); err != nil {
		return nil, err
	} else if _, chosen := values["besideSubmariner"]; beside && !chosen {
		values["besideSubmariner"] = true
	}
	planned, err := chart.PlannedValues(local.Config, values)
	if err != nil {
		return nil, err
	}
	values, note, err := chart.AdaptFailover(ctx, local.Client, values, planned)
	if err != nil {
		return nil, err
	}
	if note != "" {
		fmt.Fprintf(s.ErrOut, "note: %s\n", note)
		if planned, err = chart.PlannedValues(local.Config, values); err != nil {
			return nil, err
		}
	}
	proxy, err := chart.RunsProxy(planned)
	if err != nil {
		return nil, err
	}
	_, err = chart.EnsurePodSecurity(ctx, local.Client, proxy)
	return values, err
}

// install installs the workloads in a cluster that has joined, and makes its DNS use them.
func (f *installFlags) install(
	ctx context.Context, cmd *cobra.Command, s *session, local survey.Connection, invitation objects.Membership, member brokeradmin.JoinResult,
) (chart.Release, *dnsHook, error) {
	values, err := f.values(cmd, member.DataPlane)
	if err != nil {
		return chart.Release{}, nil, err
	}
	if values, err = adapt(ctx, s, local, values); err != nil {
		return chart.Release{}, nil, err
	}
	asValue, err := invitationValue(invitation)
	if err != nil {
		return chart.Release{}, nil, err
	}
	release, err := chart.Install(ctx, local.Config, values, asValue)
	if err != nil {
		return release, nil, err
	}
	if !f.noWait {
		progress := func(line string) { fmt.Fprintf(s.ErrOut, "waiting: %s\n", line) }
		if err := chart.Wait(ctx, local.Client, f.timeout, progress); err != nil {
			return release, nil, err
		}
		if err := chart.DeliverBeaconKey(ctx, local.Client, progress); err != nil {
			fmt.Fprintf(s.ErrOut, "note: beacons of this cluster answer up to 90 s later: %v\n", err)
		}
	}
	if !release.ConfiguresDNS {
		return release, nil, nil
	}
	leave, err := migrate.LeavesDNS(ctx, local.Client)
	if err != nil {
		return release, nil, err
	}
	if leave {
		why := "Submariner Lighthouse answers until seamark migrate lighthouse switch"
		return release, &dnsHook{ConfigMap: corefile.ConfigMap.String(), Action: "left", Why: why}, nil
	}
	hook, err := hookDNS(ctx, local.Client, release.Zone)
	return release, hook, err
}
