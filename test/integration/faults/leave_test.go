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

// membershipOf reads the membership a member has stored.
func membershipOf(t *testing.T, m *fleet.Member) objects.Membership {
	t.Helper()
	secret := &corev1.Secret{}
	must(t, m.Client.Get(context.Background(), types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret))
	membership, err := objects.MembershipFrom(secret)
	must(t, err)
	return membership
}

// invite invites a member, or renews its invitation, and makes it join with what it got.
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

// asMember is a client with a member's credential.
func asMember(t *testing.T, membership objects.Membership) client.Client {
	t.Helper()
	c, err := brokeradmin.NewClient(membership.Config())
	must(t, err)
	must(t, c.List(context.Background(), &v1alpha1.ExportRecordList{}, client.InNamespace(membership.Namespace))) // discovery comes with the first
	return c
}

// nothingOf checks that the broker holds nothing of a cluster.
func nothingOf(f *fleet.Fleet, id string) error {
	names, err := onBroker(f, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: id})
	if err != nil || len(names) > 0 {
		return fmt.Errorf("left on the broker: %v %w", names, err)
	}
	for _, obj := range []client.Object{&v1alpha1.Cluster{}, &coordinationv1.Lease{}} {
		err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, obj)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T is left on the broker (%w)", obj, err)
		}
	}
	return nil
}

// A dead member that is removed takes with it its own slices and services and nothing else, and its credential is worth
// nothing from that moment.
func TestRemovalOfADeadMember(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, west, ns, "both", "10.2.0.1") // the older one: the removed member has precedence
	exported(t, west, ns, "both")
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	importsExactly(t, north, ns, map[string]sources{"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}})
	brokerHolds(t, f, ns, 8) // three records and slices, and the two aggregates, which come after imports
	west.Stop()
	credential := asMember(t, membershipOf(t, west))
	t.Cleanup(func() { invite(t, f, west); start(t, west) })
	kept := watchImports(t, &fleet.Fleet{Members: []*fleet.Member{east, north}}, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	removed, err := brokeradmin.RemoveMember(context.Background(), f.Admin, objects.DefaultNamespace, "west")
	must(t, err)
	err = credential.List(context.Background(), &v1alpha1.ExportRecordList{}, client.InNamespace(objects.DefaultNamespace))
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("the credential of a removed member still reads: %v", err)
	}
	must(t, nothingOf(f, "west"))
	if !removed.Found || removed.ServicesLeft < 1 || removed.ServicesEnded < 1 {
		t.Errorf("removed %+v", removed)
	}
	for _, m := range []*fleet.Member{east, north} {
		importsExactly(t, m, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
		harness.Eventually(t, "the import names east alone", func() error {
			si, err := m.Import(ns, "both")
			if err != nil || len(si.Status.Clusters) != 1 || si.Status.Clusters[0].Cluster != "east" {
				return fmt.Errorf("%v %w", si.Status.Clusters, err)
			}
			return nil
		})
	}
	kept()
}

// A living member that is removed cannot put anything back, and its exports say why.
func TestRemovalOfALivingMember(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	serve(t, west, ns, "solo", "10.2.0.2")
	imported(t, east, ns, "solo", sources{"west": {"10.2.0.2"}})
	_, err := brokeradmin.RemoveMember(context.Background(), f.Admin, objects.DefaultNamespace, "west")
	must(t, err)
	t.Cleanup(func() { west.Stop(); invite(t, f, west); start(t, west) })
	notImported(t, east, ns, "solo")
	harness.Consistently(t, "nothing of it comes back", 3*time.Second, func() error { return nothingOf(f, "west") })
	harness.Eventually(t, "its exports say what to do", func() error {
		c, err := west.Condition(ns, "solo", mcsv1beta1.ServiceExportConditionReady)
		if err != nil || c.Status != "False" || !strings.Contains(c.Message, "join again") {
			return fmt.Errorf("%s/%s: %s %w", c.Status, c.Reason, c.Message, err)
		}
		return nil
	})
}

// A member leaves while its agent runs and others export the same services. What was its own is gone everywhere, for good; its
// ServiceExports stay, and say so. Joining again brings everything back.
func TestLeaveWhileOthersExport(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, west, ns, "both", "10.2.0.1")
	exported(t, west, ns, "both")
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	all := map[string]sources{"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}}
	for _, m := range f.Members {
		importsExactly(t, m, ns, all)
	}
	kept := watchImports(t, &fleet.Fleet{Members: []*fleet.Member{east, north}}, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	// Something of somebody's in the agent's namespace keeps it: without a controller-manager it would never be gone.
	west.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "mine"}})
	left, err := brokeradmin.Leave(context.Background(), west.Client)
	must(t, err)
	t.Cleanup(func() {
		west.Stop()
		invite(t, f, west, func(o *brokeradmin.InviteOptions) { o.Renew = true })
		start(t, west)
		importsExactly(t, north, ns, all)
		importsExactly(t, west, ns, all)
	})
	if !left.Member || !left.Withdrawn || left.Problem != "" {
		t.Errorf("left: %+v", left)
	}
	importsExactly(t, west, ns, nil)
	importsExactly(t, east, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	importsExactly(t, north, ns, map[string]sources{"both": {"east": {"10.1.0.1"}}})
	harness.Consistently(t, "nothing comes back", 4*time.Second, func() error {
		names, err := onBroker(f, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "west"})
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
		t.Errorf("the export that stayed says %+v %v", c, err)
	}
	kept()
}
