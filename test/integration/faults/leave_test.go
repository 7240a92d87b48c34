package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// membershipOf returns the stored membership of a member.
func membershipOf(t *testing.T, m *fleet.Member) objects.Membership {
	t.Helper()
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}
	must(t, m.Client.Get(context.Background(), key, secret))
	membership, err := objects.MembershipFrom(secret)
	must(t, err)
	return membership
}

// invite invites a member, or renews its invitation, and makes it join.
func invite(t *testing.T, f *fleet.Fleet, m *fleet.Member, change ...func(*brokeradmin.InviteOptions)) {
	t.Helper()
	o := brokeradmin.InviteOptions{Server: f.Broker.Config().Host, CAData: f.Broker.Config().CAData}
	for _, c := range change {
		c(&o)
	}
	invited, err := brokeradmin.Invite(context.Background(), f.Admin, m.ID, o)
	must(t, err)
	_, err = brokeradmin.Join(context.Background(), m.Client, invited.Membership, brokeradmin.JoinOptions{})
	must(t, err)
}

// asMember returns a client of the broker with a member's credential.
func asMember(t *testing.T, membership objects.Membership) client.Client {
	t.Helper()
	c, err := brokeradmin.NewClient(membership.Config())
	must(t, err)
	// The first request also reads the API's discovery.
	must(t, c.List(context.Background(), &v1alpha1.ExportRecordList{}, client.InNamespace(membership.Namespace)))
	return c
}

// userConfig returns a ConfigMap that keeps Leave from deleting the agent's namespace: without a
// controller-manager it would never be deleted completely, and joining again would fail.
func userConfig() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "of-the-user"}}
}

// contains reports whether the text of an error has all the parts.
func contains(err error, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			return false
		}
	}
	return true
}

// nothingLeftOf returns an error if the broker has any object of a cluster but its tombstone.
func nothingLeftOf(f *fleet.Fleet, id string) error {
	names, err := f.OnBroker(client.MatchingLabels{mcsv1beta1.LabelSourceCluster: id})
	if err != nil || len(names) > 0 {
		return fmt.Errorf("left on the broker: %v %w", names, err)
	}
	key, lease := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, &coordinationv1.Lease{}
	if err := f.Admin.Get(context.Background(), key, &v1alpha1.Cluster{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the Cluster is left on the broker (%w)", err)
	}
	if err := f.Admin.Get(context.Background(), key, lease); err != nil || objects.RemovedAt(lease) == "" || lease.Spec.RenewTime != nil {
		return fmt.Errorf("the lease is no tombstone: %v %v (%w)", lease.Annotations, lease.Spec, err)
	}
	return nil
}

// Removing a member that is down deletes its own records and slices and nothing else. Its
// credential is invalid from that moment.
func TestRemovalOfADeadMember(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, west, ns, "both", "10.2.0.1") // the older export: the removed member has precedence
	west.AwaitExported(t, ns, "both")
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	awaitImports(t, north, ns, map[string]sources{"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}})
	awaitOnBroker(t, f, ns, 8) // three records, three slices and two aggregates, which are written after the imports
	west.Stop()
	credential := asMember(t, membershipOf(t, west))
	t.Cleanup(func() { invite(t, f, west); start(t, west) })
	checkGaps := watchForGaps(t, &fleet.Fleet{Members: []*fleet.Member{east, north}}, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	removed, err := brokeradmin.RemoveMember(context.Background(), f.Admin, objects.DefaultNamespace, "west")
	must(t, err)
	err = credential.List(context.Background(), &v1alpha1.ExportRecordList{}, client.InNamespace(objects.DefaultNamespace))
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("the credential of a removed member can still read: %v", err)
	}
	must(t, nothingLeftOf(f, "west"))
	if !removed.Found || removed.ServicesLeft < 1 || removed.ServicesEnded < 1 {
		t.Errorf("removed %+v", removed)
	}
	for _, m := range []*fleet.Member{east, north} {
		awaitImports(t, m, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
		harness.Eventually(t, "the import lists east only", func() error {
			si, err := m.Import(ns, "both")
			if err != nil || len(si.Status.Clusters) != 1 || si.Status.Clusters[0].Cluster != "east" {
				return fmt.Errorf("%v %w", si.Status.Clusters, err)
			}
			return nil
		})
	}
	checkGaps()
}

// A member leaves while its agent runs and others export the same services. Its records, slices and
// imports are deleted everywhere and do not come back. Its ServiceExports stay and report that it
// left. Joining again restores everything.
func TestLeaveWhileOthersExport(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, west, ns, "both", "10.2.0.1")
	west.AwaitExported(t, ns, "both")
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	all := map[string]sources{"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}}
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
	checkGaps := watchForGaps(t, &fleet.Fleet{Members: []*fleet.Member{east, north}}, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	west.Create(t, userConfig())
	left, err := brokeradmin.Leave(context.Background(), west.Client)
	must(t, err)
	t.Cleanup(func() {
		west.Delete(t, userConfig())
		west.Stop()
		invite(t, f, west, func(o *brokeradmin.InviteOptions) { o.Renew = true })
		start(t, west)
		awaitImports(t, north, ns, all)
		awaitImports(t, west, ns, all)
	})
	if !left.Member || !left.Withdrawn || left.Problem != "" {
		t.Errorf("left: %+v", left)
	}
	awaitImports(t, west, ns, nil)
	awaitImports(t, east, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	awaitImports(t, north, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	harness.Consistently(t, "nothing is restored", 4*time.Second, func() error {
		names, err := f.OnBroker(client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "west"})
		if err != nil || len(names) > 0 {
			return fmt.Errorf("on the broker: %v %w", names, err)
		}
		imports, err := importNames(context.Background(), west, ns)
		if err != nil || len(imports) > 0 {
			return fmt.Errorf("in west: %v %w", imports, err)
		}
		return nil
	})
	c, err := west.Condition(ns, "both", mcsv1beta1.ServiceExportConditionReady)
	if err != nil || c.Status != "False" || !strings.Contains(c.Message, "left the clusterset") {
		t.Errorf("the condition of the export that stayed is %+v (%v)", c, err)
	}
	checkGaps()
}
