package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	releasecommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Action is what a command did with the release.
type Action string

// Actions of a command.
const (
	Installed   Action = "installed"
	Upgraded    Action = "upgraded"
	Unchanged   Action = "unchanged"
	Uninstalled Action = "uninstalled"
	Absent      Action = "absent"
)

// requestTimeout is the timeout of Helm's operations. It does not include waiting for workloads,
// which Wait does.
const requestTimeout = 2 * time.Minute

// keptRevisions is how many revisions are kept for helm rollback, as by the command helm.
const keptRevisions = 10

// Release is the installed chart.
type Release struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Revision  int    `json:"revision,omitempty"`
	Version   string `json:"version,omitempty"`
	// Zone is the DNS zone of the clusterset.
	Zone   string `json:"zone,omitempty"`
	Action Action `json:"action"`
	// ConfiguresDNS reports whether the agent configures the cluster's DNS.
	ConfiguresDNS bool `json:"-"`
}

// Install installs the chart or upgrades the release. Values of an earlier installation stay unless
// values overrides them. If nothing would change and every object exists, nothing is written. An
// earlier installation that has the invitation among its values gets the given one: otherwise it
// would put the old one back. Install does not install CRDs; package internal/install/crds does. It
// does not wait for pods; Wait does. If admission refuses a proxy that can be left out, the error
// says how.
func Install(ctx context.Context, config *rest.Config, values, invitation map[string]any) (Release, error) {
	result, err := apply(ctx, config, values, invitation)
	return result, adviseOnRefusal(err, values)
}

func apply(ctx context.Context, config *rest.Config, values, invitation map[string]any) (Release, error) {
	result := Release{Name: ReleaseName, Namespace: Namespace}
	c, err := Load()
	if err != nil {
		return result, err
	}
	result.Version = c.Metadata.AppVersion
	cfg, err := newConfiguration(config)
	if err != nil {
		return result, err
	}
	last, err := lastRelease(cfg)
	if err != nil {
		return result, err
	}
	if last != nil {
		values = loader.MergeMaps(last.Config, values)
		if earlier := last.Config["invitation"]; earlier != nil && earlier != "" {
			values["invitation"] = invitation
		}
	}
	all := loader.MergeMaps(c.Values, values)
	result.Zone, result.ConfiguresDNS = zoneOf(all), configuresDNS(all)
	if last == nil {
		result.Action = Installed
		made, err := install(ctx, cfg, c, values)
		if err != nil {
			return result, fmt.Errorf("install release %s: %w", ReleaseName, simplify(err))
		}
		result.Revision = made.Version
		return result, nil
	}
	if err := markInterrupted(cfg, last); err != nil {
		return result, err
	}
	planned, err := upgrade(ctx, cfg, c, values, action.DryRunServer)
	if err != nil {
		return result, fmt.Errorf("upgrade release %s: %w", ReleaseName, simplify(err))
	}
	result.Action, result.Revision = Unchanged, last.Version
	if isUnchanged(last, planned) {
		complete, err := hasAllObjects(cfg, last)
		if err != nil || complete {
			return result, err
		}
	}
	result.Action = Upgraded
	made, err := upgrade(ctx, cfg, c, values, action.DryRunNone)
	if err != nil {
		return result, fmt.Errorf("upgrade release %s: %w", ReleaseName, simplify(err))
	}
	result.Revision = made.Version
	return result, nil
}

// PlannedValues returns the values that Install would use, without the chart's own: those of an
// earlier installation stay unless values overrides them.
func PlannedValues(config *rest.Config, values map[string]any) (map[string]any, error) {
	cfg, err := newConfiguration(config)
	if err != nil {
		return nil, err
	}
	last, err := lastRelease(cfg)
	if err != nil || last == nil {
		return values, err
	}
	return loader.MergeMaps(last.Config, values), nil
}

// zoneOf returns the zone, or "" for values that the schema rejects anyway.
func zoneOf(values map[string]any) string {
	zone, _ := values["zone"].(string)
	return zone
}

// configuresDNS returns the value, true for values that the schema rejects anyway.
func configuresDNS(values map[string]any) bool {
	settings, _ := values["clusterDNS"].(map[string]any)
	configure, known := settings["configure"].(bool)
	return configure || !known
}

// lastRelease returns the last revision of the release, or nil if there is none.
func lastRelease(cfg *action.Configuration) (*release.Release, error) {
	found, err := cfg.Releases.Last(ReleaseName)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for release %s in namespace %s: %w", ReleaseName, Namespace, err)
	}
	return asRelease(found)
}

func asRelease(r any) (*release.Release, error) {
	typed, ok := r.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("release %s is of a format (%T) that this version does not know: use a newer seamark", ReleaseName, r)
	}
	return typed, nil
}

// markInterrupted marks an interrupted installation as failed, so that it can be upgraded. It fails
// for an installation that may still be running.
func markInterrupted(cfg *action.Configuration, last *release.Release) error {
	status := last.Info.Status
	if !status.IsPending() && status != releasecommon.StatusUninstalling {
		return nil
	}
	if age := time.Since(last.Info.LastDeployed); age < requestTimeout {
		return fmt.Errorf("release %s is %s since %s: another client is changing it; "+
			"wait until it is done, or for two minutes if it was interrupted",
			ReleaseName, status, age.Round(time.Second))
	}
	last.SetStatus(releasecommon.StatusFailed, "interrupted")
	if err := cfg.Releases.Update(last); err != nil {
		return fmt.Errorf("mark the interrupted installation of release %s as failed: %w", ReleaseName, err)
	}
	return nil
}

func install(ctx context.Context, cfg *action.Configuration, c *helmchart.Chart, values map[string]any) (*release.Release, error) {
	i := action.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.Timeout = ReleaseName, Namespace, requestTimeout
	i.SkipCRDs = true
	// The API server validates the fields strictly. For the same check Helm would read all schemas of
	// the API server, which takes longer than everything else.
	i.DisableOpenAPIValidation = true
	i.TakeOwnership = true // seamark join has applied the policies before
	i.ServerSideApply, i.ForceConflicts = true, true
	i.WaitStrategy = kube.HookOnlyStrategy
	made, err := i.RunWithContext(ctx, c, values)
	if err != nil {
		return nil, err
	}
	return asRelease(made)
}

func upgrade(
	ctx context.Context, cfg *action.Configuration, c *helmchart.Chart, values map[string]any, dry action.DryRunStrategy,
) (*release.Release, error) {
	u := action.NewUpgrade(cfg)
	u.Namespace, u.Timeout, u.MaxHistory = Namespace, requestTimeout, keptRevisions
	u.SkipCRDs, u.TakeOwnership, u.ResetValues = true, true, true
	u.DisableOpenAPIValidation = true
	u.ServerSideApply, u.ForceConflicts = "true", true
	u.WaitStrategy = kube.HookOnlyStrategy
	u.DryRunStrategy = dry
	made, err := u.RunWithContext(ctx, ReleaseName, c, values)
	if err != nil {
		return nil, err
	}
	return asRelease(made)
}

// isUnchanged reports whether an upgrade would change nothing.
func isUnchanged(have, planned *release.Release) bool {
	return have.Info.Status == releasecommon.StatusDeployed && have.Manifest == planned.Manifest &&
		have.Chart.Metadata.Version == planned.Chart.Metadata.Version && equality.Semantic.DeepEqual(have.Config, planned.Config)
}

// hasAllObjects reports whether the cluster has every object of a release. Another client may have
// deleted one.
func hasAllObjects(cfg *action.Configuration, r *release.Release) (bool, error) {
	objects, err := cfg.KubeClient.Build(strings.NewReader(r.Manifest), false)
	if err != nil {
		return false, fmt.Errorf("read release %s: %w", ReleaseName, err)
	}
	for _, object := range objects {
		if err := object.Get(); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("look for %s %s: %w", object.Mapping.GroupVersionKind.Kind, object.Name, err)
		}
	}
	return true, nil
}

// Uninstall uninstalls the release, also one that was installed with helm. Without a release it
// does nothing. With a timeout above zero it waits until the pods are gone, and fails after the
// timeout.
func Uninstall(ctx context.Context, config *rest.Config, c client.Client, timeout time.Duration) (Release, error) {
	result := Release{Name: ReleaseName, Namespace: Namespace, Action: Absent}
	cfg, err := newConfiguration(config)
	if err != nil {
		return result, err
	}
	last, err := lastRelease(cfg)
	if err != nil || last == nil {
		return result, err
	}
	u := action.NewUninstall(cfg)
	// Helm's own waiting can fail early with an error about a Deployment that is still being deleted.
	u.IgnoreNotFound, u.Timeout, u.WaitStrategy, u.DeletionPropagation = true, requestTimeout, kube.HookOnlyStrategy, "background"
	if _, err := u.Run(ReleaseName); err != nil {
		return result, fmt.Errorf("uninstall release %s from namespace %s: %w", ReleaseName, Namespace, err)
	}
	result.Action, result.Revision, result.Version = Uninstalled, last.Version, last.Chart.Metadata.AppVersion
	if timeout == 0 {
		return result, nil
	}
	return result, waitUntil(ctx, timeout, "the pods of release "+ReleaseName+" to end", func(ctx context.Context) (bool, error) {
		left, err := readWorkloads(ctx, c)
		return len(left.deployments)+len(left.daemonSets)+len(left.pods) == 0, err
	})
}
