package chart

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/previous"
)

// Helm upgrades a release of the previous version, and rolls it back. A release of this version can
// be downgraded. The membership is not touched by either.
func TestHelmAndThePreviousVersion(t *testing.T) {
	old, err := previous.Build()
	if err != nil {
		t.Fatal(err)
	}
	b := newFixture(t, "east", "west")
	runOld := func(line string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), old.CLI, append(strings.Fields(line), "--kubeconfig", b.kubeconfig)...).CombinedOutput()
		if err != nil {
			t.Fatalf("seamark %s of the previous version: %v\n%s", line, err, out)
		}
	}
	runOld("broker deploy --context west")
	runOld("join --broker-context west --context east --clusterid east --no-wait --no-dns")
	joined := b.membership("east")
	readsInvitations := func(when string, want bool) {
		t.Helper()
		role := get(b, "east", chart.Namespace, "seamark-agent", &rbacv1.Role{})
		reads := false
		for _, rule := range role.Rules {
			reads = reads || strings.Contains(strings.Join(rule.ResourceNames, " "), objects.InvitationSecret)
		}
		if reads != want {
			t.Errorf("%s the agent may read invitations: %t", when, reads)
		}
		if diff := cmp.Diff(joined, b.membership("east")); diff != "" {
			t.Errorf("%s the membership is another: %s", when, diff)
		}
	}
	readsInvitations("at first", false)
	upgrade := func(c *helmchart.Chart, values map[string]any, force bool) {
		t.Helper()
		u := action.NewUpgrade(b.helm("east"))
		u.Namespace, u.WaitStrategy, u.ResetValues, u.ForceConflicts = chart.Namespace, kube.HookOnlyStrategy, values != nil, force
		if _, err := u.Run(chart.ReleaseName, c, values); err != nil {
			t.Fatalf("helm upgrade: %v", err)
		}
	}
	upgrade(packaged(t), nil, true) // the previous join wrote policies in its own name
	readsInvitations("after helm upgrade", true)
	rollback := action.NewRollback(b.helm("east"))
	rollback.WaitStrategy = kube.HookOnlyStrategy
	if err := rollback.Run(chart.ReleaseName); err != nil {
		t.Fatalf("helm rollback: %v", err)
	}
	readsInvitations("after helm rollback", false)

	b.must("broker deploy --context west")
	b.must("leave --context east --broker-context west")
	b.join("east", "west", "--no-dns")
	joined = b.membership("east")
	readsInvitations("after a new join", true)
	dir := t.TempDir()
	runOld("chart package " + dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the chart of the previous version: %v (%v)", files, err)
	}
	before, err := loader.LoadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	upgrade(before, map[string]any{}, false)
	readsInvitations("after a downgrade", false)
}

// membership returns what the agent of a cluster reads.
func (b *fixture) membership(cluster string) map[string][]byte {
	b.t.Helper()
	return get(b, cluster, chart.Namespace, objects.MembershipSecret, &corev1.Secret{}).Data
}
