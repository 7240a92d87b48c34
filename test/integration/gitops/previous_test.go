package gitops_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/previous"
)

// A member of the previous version, which kept everything in one Secret, is upgraded, gets an
// invitation, is rolled back and is upgraded again. It is a member all the time.
func TestUpgradeAndRollback(t *testing.T) {
	cps := harness.Fresh(t, 2)
	old, err := previous.Build()
	must(t, err)
	b, east := newBroker(t, cps[0]), memberOf(t, cps[1], "east")
	first := b.invite(t, "east")
	joinPrevious(t, old.CLI, cps[1], first)
	if invitation := first.Invitation(); !absent(east.Client, invitation) {
		t.Fatalf("the previous version has Secret %s: this test is about a version without it", invitation.Name)
	}
	ns := fleet.NewNamespace(t, east)
	exports := func(name, address string) {
		t.Helper()
		east.Serve(t, fleet.NewService(ns, name), address)
		east.Export(t, ns, name)
		east.AwaitExported(t, ns, name)
	}
	startPrevious := func() {
		t.Helper()
		must(t, east.StartBinary(old.Agent))
		t.Cleanup(east.Kill)
	}
	startPrevious()
	exports("joined", "10.1.0.1")

	// The earlier join owns CRDs and policies, and those of this version differ.
	apply(t, east.Client, rendered(t, nil), client.ForceOwnership)
	exports("new-roles", "10.1.0.2") // the previous agent goes on with what is applied
	east.Kill()
	_, stop := runAgent(t, cps[1])
	exports("upgraded", "10.1.0.3")
	if m, err := stored(east.Client); err != nil || m.ClusterID != first.ClusterID || m.Server != first.Server {
		t.Errorf("after the upgrade the membership is that of %s at %s (%v)", m.ClusterID, m.Server, err)
	}
	second := b.renewLater(t, "east", first.Token, revoke)
	apply(t, east.Client, asSecret(t, second))
	awaitStored(t, east.Client, second)
	exports("invited", "10.1.0.4")
	stop()

	startPrevious() // it knows nothing of the invitation
	exports("rolled-back", "10.1.0.5")
	east.Kill()
	runAgent(t, cps[1])
	exports("again", "10.1.0.6")
}

// joinPrevious makes a cluster a member with the previous version's CLI.
func joinPrevious(t *testing.T, cli string, cp *controlplane.ControlPlane, m objects.Membership) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, invitation := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "east.invitation.yaml")
	must(t, clientcmd.WriteToFile(*harness.Kubeconfig(map[string]*rest.Config{m.ClusterID: cp.Config()}, "default"), kubeconfig))
	text, err := brokeradmin.EncodeInvitation(m)
	must(t, err)
	must(t, os.WriteFile(invitation, text, 0o600))
	join := exec.CommandContext(t.Context(), cli, "join", invitation, "--no-install", "--kubeconfig", kubeconfig, "--context", m.ClusterID)
	if out, err := join.CombinedOutput(); err != nil {
		t.Fatalf("seamark join of the previous version: %v\n%s", err, out)
	}
}
