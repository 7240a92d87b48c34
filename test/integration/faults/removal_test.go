package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// noMembership returns an error if a cluster has anything that only a member may have: imports,
// derived Services, or the claim to be a member.
func noMembership(m *fleet.Member, ns string) error {
	ctx := context.Background()
	imports, err := importNames(ctx, m, ns)
	if err != nil || len(imports) > 0 {
		return fmt.Errorf("imports: %v %w", imports, err)
	}
	var services corev1.ServiceList
	managed := client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark}
	if err := m.Client.List(ctx, &services, client.InNamespace(ns), managed); err != nil || len(services.Items) > 0 {
		return fmt.Errorf("%d derived Services %w", len(services.Items), err)
	}
	addresses, err := importedAddresses(m, ns)
	if err != nil || len(addresses) > 0 {
		return fmt.Errorf("imported slices: %v %w", addresses, err)
	}
	for _, claim := range objects.MembershipClaims("") {
		if err := m.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s exists (%w)", claim, claim.GetName(), err)
		}
	}
	return nil
}

// A member that the admin removed learns it: it deletes what it imported and its claim to be a
// member, its exports say so, and it rests, also after a restart and when its credential has
// expired. A new invitation brings everything back without a restart.
func TestRemovedMemberWithdraws(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	all := map[string]sources{"web": {"east": {"10.1.0.1"}}, "solo": {"west": {"10.2.0.2"}}}
	awaitImports(t, west, ns, all)
	west.AwaitExported(t, ns, "solo")
	old := membershipOf(t, west)
	_, err := brokeradmin.RemoveMember(context.Background(), f.Admin, objects.DefaultNamespace, "west")
	must(t, err)
	joined := false
	join := func() {
		if !joined {
			invite(t, f, west)
			joined = true
		}
	}
	t.Cleanup(join)
	harness.Eventually(t, "west withdraws", func() error { return noMembership(west, ns) })
	awaitNotReady(t, west, ns, "solo", v1alpha1.ServiceExportReasonNotMember,
		"was removed from clusterset clusterset at", "seamark broker invite west", "seamark join")
	must(t, nothingLeftOf(f, "west"))
	awaitImports(t, east, ns, map[string]sources{"web": {"east": {"10.1.0.1"}}})

	unchanged := unchangedCheck(t, ns, west)
	rests := func() error {
		if err := unchanged(); err != nil {
			return err
		}
		return noMembership(west, ns)
	}
	west.Stop()
	start(t, west)
	harness.Consistently(t, "west rests after a restart", 3*time.Second, rests)
	west.Stop()
	storeToken(t, west, unsignedToken(-73*time.Hour, -time.Hour))
	start(t, west)
	harness.Consistently(t, "west rests with an expired token", 3*time.Second, rests)

	_, err = brokeradmin.Invite(context.Background(), f.Admin, "west", brokeradmin.InviteOptions{
		Server: f.Broker.Config().Host, CAData: f.Broker.Config().CAData, Renew: true,
	})
	if err == nil || !contains(err, "was removed from clusterset clusterset at", "leave out --renew") {
		t.Errorf("renewing a removed member: %v", err)
	}
	join()
	awaitImports(t, west, ns, all)
	awaitImports(t, east, ns, all)
	west.AwaitExported(t, ns, "solo")
	c, err := brokeradmin.NewClient(old.Config())
	must(t, err)
	harness.Eventually(t, "the credential from before the removal stays invalid", func() error {
		err := c.Get(context.Background(), types.NamespacedName{Namespace: old.Namespace, Name: "west"}, &v1alpha1.Cluster{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// A cluster whose own API server is restored to a time before it left, or whose agent did not run
// meanwhile, does not become a member again.
func TestAgentOfAClusterThatLeft(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	all := map[string]sources{"web": {"east": {"10.1.0.1"}}, "solo": {"west": {"10.2.0.2"}}}
	awaitImports(t, west, ns, all)
	west.Stop()
	membership := membershipOf(t, west)
	west.Create(t, userConfig())
	_, err := brokeradmin.Leave(context.Background(), west.Client)
	must(t, err)
	t.Cleanup(func() { west.Delete(t, userConfig()) })
	west.Create(t, membership.Secret())
	start(t, west)
	harness.Eventually(t, "its agent finds that it left", func() error {
		secret := &corev1.Secret{}
		err := west.Client.Get(context.Background(), client.ObjectKeyFromObject(membership.Secret()), secret)
		if err != nil || objects.RemovedAt(secret) == "" {
			return fmt.Errorf("the Secret is not marked (%w)", err)
		}
		return noMembership(west, ns)
	})
	awaitImports(t, east, ns, map[string]sources{"web": {"east": {"10.1.0.1"}}})
	// The registration is still there, so joining with the same credential is enough.
	_, err = brokeradmin.Join(context.Background(), west.Client, membership, brokeradmin.JoinOptions{})
	must(t, err)
	awaitImports(t, west, ns, all)
	awaitImports(t, east, ns, all)
}
