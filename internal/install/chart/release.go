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

// Action is what became of the release.
type Action string

// What can become of the release.
const (
	Installed   Action = "installed"
	Upgraded    Action = "upgraded"
	Unchanged   Action = "unchanged"
	Uninstalled Action = "uninstalled"
	Absent      Action = "absent"
)

// requestTimeout bounds what Helm does beside waiting for workloads, which is not left to it.
const requestTimeout = 2 * time.Minute

// keptRevisions is how many revisions helm rollback can go back to, as with the command helm.
const keptRevisions = 10

// Release is the installed chart.
type Release struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Revision  int    `json:"revision,omitempty"`
	Version   string `json:"version,omitempty"`
	// Zone is the zone of the clusterset's names.
	Zone   string `json:"zone,omitempty"`
	Action Action `json:"action"`
}

// Install installs the chart, or upgrades what is there. Values that an earlier installation chose stay, but for those given here. When
// nothing would differ and every object is there, nothing is written. CustomResourceDefinitions are not touched: package
// internal/install/crds decides about those. It does not wait for pods; Wait does.
func Install(ctx context.Context, config *rest.Config, values map[string]any) (Release, error) {
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
	}
	result.Zone = zoneOf(loader.MergeMaps(c.Values, values))
	if last == nil {
		result.Action = Installed
		made, err := install(ctx, cfg, c, values)
		if err != nil {
			return result, fmt.Errorf("install release %s: %w", ReleaseName, explain(err))
		}
		result.Revision = made.Version
		return result, nil
	}
	if err := settle(cfg, last); err != nil {
		return result, err
	}
	planned, err := upgrade(ctx, cfg, c, values, action.DryRunServer)
	if err != nil {
		return result, fmt.Errorf("upgrade release %s: %w", ReleaseName, explain(err))
	}
	result.Action, result.Revision = Unchanged, last.Version
	if same(last, planned) {
		complete, err := allThere(cfg, last)
		if err != nil || complete {
			return result, err
		}
	}
	result.Action = Upgraded
	made, err := upgrade(ctx, cfg, c, values, action.DryRunNone)
	if err != nil {
		return result, fmt.Errorf("upgrade release %s: %w", ReleaseName, explain(err))
	}
	result.Revision = made.Version
	return result, nil
}

// zoneOf is "" only where the schema refuses the values anyway.
func zoneOf(values map[string]any) string {
	zone, _ := values["zone"].(string)
	return zone
}

// lastRelease is nil when there is none.
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

// settle makes an installation that somebody broke off one that failed, which can be upgraded. One that may still be going on is left alone.
func settle(cfg *action.Configuration, last *release.Release) error {
	status := last.Info.Status
	if !status.IsPending() && status != releasecommon.StatusUninstalling {
		return nil
	}
	if age := time.Since(last.Info.LastDeployed); age < requestTimeout {
		return fmt.Errorf("release %s is %s since %s: somebody else is at it; wait until that is done, or for two minutes if it was broken off",
			ReleaseName, status, age.Round(time.Second))
	}
	last.SetStatus(releasecommon.StatusFailed, "broken off")
	if err := cfg.Releases.Update(last); err != nil {
		return fmt.Errorf("mark the broken off installation of release %s: %w", ReleaseName, err)
	}
	return nil
}

func install(ctx context.Context, cfg *action.Configuration, c *helmchart.Chart, values map[string]any) (*release.Release, error) {
	i := action.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.Timeout = ReleaseName, Namespace, requestTimeout
	i.SkipCRDs = true
	// The API server checks the fields of what is applied, strictly. Helm would read all of its schemas for the same, which takes longer
	// than everything else together.
	i.DisableOpenAPIValidation = true
	i.TakeOwnership = true // joining applied the policies before
	i.ServerSideApply, i.ForceConflicts = true, true
	i.WaitStrategy = kube.HookOnlyStrategy
	made, err := i.RunWithContext(ctx, c, values)
	if err != nil {
		return nil, err
	}
	return asRelease(made)
}

func upgrade(ctx context.Context, cfg *action.Configuration, c *helmchart.Chart, values map[string]any, dry action.DryRunStrategy) (*release.Release, error) {
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

// same tells whether an upgrade would change nothing.
func same(have, planned *release.Release) bool {
	return have.Info.Status == releasecommon.StatusDeployed && have.Manifest == planned.Manifest &&
		have.Chart.Metadata.Version == planned.Chart.Metadata.Version && equality.Semantic.DeepEqual(have.Config, planned.Config)
}

// allThere tells whether the cluster has every object of a release: somebody may have deleted one.
func allThere(cfg *action.Configuration, r *release.Release) (bool, error) {
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

// Uninstall takes the release away, whoever installed it; one that is not there is as good. With patience above zero it returns when the
// pods are gone too, or fails after that time.
func Uninstall(ctx context.Context, config *rest.Config, c client.Client, patience time.Duration) (Release, error) {
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
	// Not Helm's own waiting, which was seen to end early with an error about a Deployment that was still ending.
	u.IgnoreNotFound, u.Timeout, u.WaitStrategy, u.DeletionPropagation = true, requestTimeout, kube.HookOnlyStrategy, "background"
	if _, err := u.Run(ReleaseName); err != nil {
		return result, fmt.Errorf("uninstall release %s from namespace %s: %w", ReleaseName, Namespace, err)
	}
	result.Action, result.Revision, result.Version = Uninstalled, last.Version, last.Chart.Metadata.AppVersion
	if patience == 0 {
		return result, nil
	}
	return result, until(ctx, patience, "the pods of release "+ReleaseName+" to end", func(ctx context.Context) (bool, error) {
		left, err := readWorkloads(ctx, c)
		return len(left.deployments)+len(left.daemonSets)+len(left.pods) == 0, err
	})
}
