package cli

import (
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
)

// Two brokers on one API server have objects of their own. Deploying again restores one that was
// deleted, upgrades one that is as an earlier version wrote it, and keeps what a user edited.
func TestFairnessObjects(t *testing.T) {
	env := newEnvironment(t)
	c := env.clients["broker"]
	newBroker(env, "b-fair", "")
	newBroker(env, "b-fair-two", "")
	level := func(name string) *flowcontrolv1.PriorityLevelConfiguration {
		t.Helper()
		l := &flowcontrolv1.PriorityLevelConfiguration{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: name}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	patch := func(obj client.Object, text string) {
		t.Helper()
		if err := c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	const members, leases = "seamark-members.b-fair", "seamark-leases.b-fair"
	patch(level(members), `{"spec":{"limited":{"nominalConcurrencyShares":77}}}`)
	// As an earlier version wrote it: the generation is the one in the annotation.
	patch(level(leases), `{"metadata":{"annotations":{"seamark.dev/installed-generation":"2"}},"spec":{"limited":{"nominalConcurrencyShares":3}}}`)
	if err := c.Delete(t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: members}}); err != nil {
		t.Fatal(err)
	}
	env.mustRun("broker deploy --context broker -n b-fair")
	if got := *level(members).Spec.Limited.NominalConcurrencyShares; got != 77 {
		t.Errorf("the user's 77 shares are now %d", got)
	}
	if got := *level(leases).Spec.Limited.NominalConcurrencyShares; got != 30 {
		t.Errorf("the level of leases was not upgraded: %d shares", got)
	}
	if missing, err := brokeradmin.MissingFairness(t.Context(), c, "b-fair"); err != nil || len(missing) > 0 {
		t.Errorf("missing: %v (%v)", missing, err)
	}
	env.expectNoWrites(t, "deploy after an upgrade", func() { env.mustRun("broker deploy --context broker -n b-fair") })

	env.mustRun("broker remove --context broker -n b-fair")
	if missing, err := brokeradmin.MissingFairness(t.Context(), c, "b-fair"); err != nil || len(missing) != 4 {
		t.Errorf("of a broker that was removed only these are missing: %v (%v)", missing, err)
	}
	if missing, err := brokeradmin.MissingFairness(t.Context(), c, "b-fair-two"); err != nil || len(missing) > 0 {
		t.Errorf("the other broker lost %v (%v)", missing, err)
	}
}

// An admin who may not write API priority and fairness objects deploys a broker without them. A
// warning says what that means.
func TestDeployWithoutFairness(t *testing.T) {
	env := newEnvironment(t)
	ctx, admin := t.Context(), env.clients["broker"]
	const user = "broker-admin"
	all := []string{"*"}
	env.create("broker",
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{
				"", "rbac.authorization.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "seamark.dev", "multicluster.x-k8s.io",
				"apiextensions.k8s.io", "admissionregistration.k8s.io", "apps", "batch",
			}, Resources: all, Verbs: all},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	config := env.planes["broker"].Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c := newClient(t, config)
	deployed, err := brokeradmin.Deploy(ctx, c, brokeradmin.DeployOptions{Namespace: "b-unfair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.removeBroker("b-unfair") })
	const reason = "you may not read or write FlowSchemas and PriorityLevelConfigurations"
	if deployed.FairnessMissing != reason {
		t.Errorf("%q", deployed.FairnessMissing)
	}
	err = admin.Get(ctx, types.NamespacedName{Name: "seamark-members.b-unfair"}, &flowcontrolv1.FlowSchema{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the FlowSchema: %v", err)
	}
	o := env.run("broker deploy --context broker -n b-unfair --as " + user)
	if o.Code != 0 || !strings.Contains(o.Stderr, "warning: the members have no share of the API server of their own ("+reason+")") {
		t.Errorf("exit %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	removed, err := brokeradmin.RemoveBroker(ctx, c, "b-unfair", false)
	if err != nil || removed.FairnessKept != reason {
		t.Errorf("%+v (%v)", removed, err)
	}
}
