package trust

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// clusterset is two honest members with agents, east and west, and a compromised one, evil, of
// which the test holds the credential.
type clusterset struct {
	*fleet.Fleet
	east, west *fleet.Member
	evil       client.WithWatch
}

var (
	sharedMembers fleet.Shared
	sharedEvil    client.WithWatch
)

func withEvilMember(t *testing.T) clusterset {
	t.Helper()
	cps := harness.Clusters(t, 3)
	if sharedEvil == nil {
		for i, cp := range cps[1:] { // agents publish the ranges of these nodes when they start
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			node.Spec.PodCIDR = fmt.Sprintf("10.%d.0.0/24", 51+i)
			node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
			c := harness.Client(t, cp)
			must(t, c.Create(t.Context(), node))
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.%d.1", 51+i)}}
			must(t, c.Status().Update(t.Context(), node))
		}
	}
	f := sharedMembers.Get(t, cps[1], cps[1:], fleet.Options{})
	if sharedEvil == nil {
		sharedEvil = admit(t, f, "evil")
	}
	return clusterset{f, f.Members[0], f.Members[1], sharedEvil}
}

// admit invites a member and returns a client with its credential.
func admit(t *testing.T, f *fleet.Fleet, id string) client.WithWatch {
	t.Helper()
	cfg := f.Broker.Config()
	invited, err := brokeradmin.Invite(t.Context(), f.Admin, id, brokeradmin.InviteOptions{Server: cfg.Host, CAData: cfg.CAData})
	must(t, err)
	c, err := client.NewWithWatch(invited.Membership.Config(), client.Options{Scheme: brokeradmin.NewScheme()})
	must(t, err)
	harness.Eventually(t, "the grants of "+id+" are in force", func() error {
		if err := c.Create(t.Context(), record(id, system), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	return c
}

// publish publishes a service of evil with these addresses, and removes it at the end of the test.
func (c clusterset) publish(t *testing.T, service types.NamespacedName, addresses ...string) {
	t.Helper()
	r, s := record("evil", service), slice("evil", service)
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}}
	s.Endpoints = nil
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	for _, obj := range []client.Object{r, s} {
		must(t, c.evil.Create(t.Context(), obj))
		t.Cleanup(func() { must(t, client.IgnoreNotFound(c.Admin.Delete(context.Background(), obj))) })
	}
}

// changeEndpoints replaces the endpoint of a service that evil publishes.
func (c clusterset) changeEndpoints(t *testing.T, service types.NamespacedName, address string) {
	t.Helper()
	s := slice("evil", service)
	must(t, c.evil.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
	must(t, c.evil.Update(t.Context(), s))
}

// grant changes what the broker's admin grants evil, until the end of the test.
func (c clusterset) grant(t *testing.T, change func(*v1alpha1.ClusterSpec)) {
	t.Helper()
	update := func(change func(*v1alpha1.ClusterSpec)) {
		harness.Eventually(t, "change what is granted to evil", func() error {
			cluster := &v1alpha1.Cluster{}
			if err := c.Admin.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: "evil"}, cluster); err != nil {
				return err
			}
			change(&cluster.Spec)
			return c.Admin.Update(context.Background(), cluster)
		})
	}
	update(change)
	t.Cleanup(func() {
		update(func(spec *v1alpha1.ClusterSpec) {
			*spec = v1alpha1.ClusterSpec{ClusterSetIPBlocks: spec.ClusterSetIPBlocks}
		})
	})
}

// The oldest export decides about a service. A member cannot take one over with an early date.
func TestAnEarlyDateDoesNotTakeAService(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	c.east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	c.east.Export(t, ns, "web")
	honest := map[string][]string{"east": {"10.1.0.1"}}
	c.west.AwaitImport(t, ns, "web", honest)

	newcomer := admit(t, c.Fleet, "newcomer")
	early := record("newcomer", service)
	early.Spec.Type, early.Spec.ExportedAt = mcsv1beta1.Headless, metav1.Unix(0, 0)
	if err := newcomer.Create(t.Context(), early.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Fatalf("a record from 1970 is not refused: %v", err)
	}
	// The same on a broker without the policy.
	must(t, c.Admin.Create(t.Context(), early))
	t.Cleanup(func() { must(t, c.Admin.Delete(context.Background(), early)) })
	c.east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonTypeConflict)
	harness.Consistently(t, "east serves west alone", 3*time.Second, func() error {
		si, err := c.west.Import(ns, "web")
		if err != nil {
			return err
		}
		if si.Spec.Type != mcsv1beta1.ClusterSetIP || len(si.Spec.IPs) == 0 {
			return fmt.Errorf("it is %s with the addresses %v", si.Spec.Type, si.Spec.IPs)
		}
		return c.west.CheckAddresses(ns, "web", honest)
	})
}

// What the broker's admin narrows or removes ends at once what is already published.
func TestNarrowedGrantsEndWhatIsPublished(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	c.east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	c.east.Export(t, ns, "web")
	c.publish(t, service, "10.6.6.6")
	both := map[string][]string{"east": {"10.1.0.1"}, "evil": {"10.6.6.6"}}
	c.west.AwaitImport(t, ns, "web", both)

	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.AllowedNamespaces = []string{"elsewhere"} })
	c.west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	harness.Eventually(t, "the import lists east alone", func() error {
		si, err := c.west.Import(ns, "web")
		if got := fleet.ClustersOf(si); err != nil || len(got) != 1 {
			return fmt.Errorf("it lists %v (%w)", got, err)
		}
		return nil
	})
	c.changeEndpoints(t, service, "10.6.6.7") // the broker admits it
	harness.Consistently(t, "west uses east alone", 2*time.Second, func() error {
		return c.west.CheckAddresses(ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	})
	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.AllowedNamespaces = []string{ns} })
	both["evil"] = []string{"10.6.6.7"}
	c.west.AwaitImport(t, ns, "web", both)

	cluster := &v1alpha1.Cluster{}
	must(t, c.Admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "evil"}, cluster))
	must(t, c.Admin.Delete(t.Context(), cluster))
	c.west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	again := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "evil", Labels: cluster.Labels}, Spec: cluster.Spec}
	must(t, c.Admin.Create(t.Context(), again))
	c.west.AwaitImport(t, ns, "web", both)
}

// refused returns the message about refused addresses of a service in west.
func (c clusterset) refused(ns, name string) string {
	si, err := c.west.Import(ns, name)
	if err != nil {
		return ""
	}
	if condition := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionAddressesRefused)); condition != nil {
		return condition.Message
	}
	return ""
}

// A member cannot send clients of other clusters to these clusters themselves, to metadata services
// or to a third cluster. It cannot have the addresses of others refused either.
func TestAddressesOfOthersAreRefused(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	harness.Eventually(t, "east has published its ranges", func() error {
		cluster := &v1alpha1.Cluster{}
		err := c.Admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "east"}, cluster)
		if err == nil && fmt.Sprint(cluster.Status.NodeCIDRs, cluster.Status.PodCIDRs) != "[192.168.51.1/32] [10.51.0.0/24]" {
			err = fmt.Errorf("they are %v and %v", cluster.Status.NodeCIDRs, cluster.Status.PodCIDRs)
		}
		return err
	})
	kubernetes := &corev1.Service{}
	must(t, c.west.Client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kubernetes"}, kubernetes))
	reasons := map[string]string{
		kubernetes.Spec.ClusterIP: "in the range of this cluster's own Services",
		"10.52.0.9":               "in the range of this cluster's own pods",
		"192.168.52.1":            "the address of a node of this cluster",
		"10.51.0.9":               "inside the ranges of cluster east",
		"192.168.51.1":            "inside the ranges of cluster east",
		"168.63.129.16":           "a metadata address of a cloud",
		"100.100.100.200":         "a metadata address of a cloud",
	}
	web := types.NamespacedName{Namespace: ns, Name: "web"}
	c.publish(t, web, append(slices.Collect(maps.Keys(reasons)), "10.6.6.6")...)
	c.west.AwaitImport(t, ns, "web", map[string][]string{"evil": {"10.6.6.6"}})
	harness.Eventually(t, "the import names all refused addresses", func() error {
		message := c.refused(ns, "web")
		for addr, why := range reasons {
			if !strings.Contains(message, addr+" from cluster evil is "+why) {
				return fmt.Errorf("not %s: %s", addr, message)
			}
		}
		return nil
	})

	// Legitimate: pods in the host network, pods, external addresses. Evil claims them, in vain.
	cluster := &v1alpha1.Cluster{}
	must(t, c.Admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "evil"}, cluster))
	cluster.Status.PodCIDRs, cluster.Status.NodeCIDRs = []v1alpha1.CIDR{"10.51.0.0/24", "203.0.113.0/24"}, []v1alpha1.CIDR{"192.168.51.1/32"}
	must(t, c.evil.Status().Update(t.Context(), cluster))
	t.Cleanup(func() {
		must(t, c.Admin.Get(context.Background(), client.ObjectKeyFromObject(cluster), cluster))
		cluster.Status = v1alpha1.ClusterStatus{}
		must(t, c.Admin.Status().Update(context.Background(), cluster))
	})
	c.east.Serve(t, fleet.NewService(ns, "cart"), "10.51.0.5", "192.168.51.1", "198.51.100.7")
	c.east.Export(t, ns, "cart")
	honest := map[string][]string{"east": {"10.51.0.5", "192.168.51.1", "198.51.100.7"}}
	c.west.AwaitImport(t, ns, "cart", honest)
	c.Consistently(t, "east's endpoints stay", 3*time.Second, func() error { return c.west.CheckAddresses(ns, "cart", honest) })

	// The admin fixes where the endpoints of evil may lie.
	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.EndpointRanges = []v1alpha1.CIDR{"10.7.0.0/16"} })
	const outside = "10.6.6.6 from cluster evil is outside the ranges that the broker's admin fixed"
	harness.Eventually(t, "what lies elsewhere is refused", func() error {
		if message := c.refused(ns, "web"); !strings.Contains(message, outside) {
			return fmt.Errorf("it says: %s", message)
		}
		return c.west.CheckAddresses(ns, "web", map[string][]string{})
	})
}

// A member cannot fill the others: the oldest of its services stay within its limits.
func TestLimitsOfAMember(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.Limits.Services = 2 })
	for i := range 4 {
		c.publish(t, types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("s%d", i)}, "10.6.6.6")
	}
	imports := func(want ...string) func() error {
		return func() error {
			var list mcsv1beta1.ServiceImportList
			err := c.west.Client.List(t.Context(), &list, client.InNamespace(ns))
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Name)
			}
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("west imports %v, want %v (%w)", got, want, err)
			}
			return nil
		}
	}
	harness.Eventually(t, "the two oldest services are imported", imports("s0", "s1"))
	harness.Consistently(t, "no other is", 2*time.Second, imports("s0", "s1"))
	must(t, c.evil.Delete(t.Context(), record("evil", types.NamespacedName{Namespace: ns, Name: "s0"})))
	harness.Eventually(t, "the next one follows", imports("s1", "s2"))
	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.Limits.Services = 9 })
	harness.Eventually(t, "all are imported", imports("s1", "s2", "s3"))
	c.grant(t, func(spec *v1alpha1.ClusterSpec) { spec.Limits.Endpoints = 1 })
	harness.Eventually(t, "one endpoint is one service", imports("s1"))
}

// The exporter says that its limit is reached, and publishes when there is room.
func TestLimitIsReportedByTheExporter(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	var records v1alpha1.ExportRecordList
	must(t, c.Admin.List(t.Context(), &records, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "east"}))
	limit := func(n int32) {
		harness.Eventually(t, "limit east", func() error {
			cluster := &v1alpha1.Cluster{}
			if err := c.Admin.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: "east"}, cluster); err != nil {
				return err
			}
			cluster.Spec.Limits.Services = n
			return c.Admin.Update(context.Background(), cluster)
		})
	}
	limit(int32(len(records.Items) + 1))
	t.Cleanup(func() { limit(0) })
	for _, name := range []string{"first", "second"} {
		c.east.Serve(t, fleet.NewService(ns, name), "10.51.0.7")
	}
	c.east.Export(t, ns, "first")
	c.east.AwaitExported(t, ns, "first")
	c.east.Export(t, ns, "second")
	c.east.Awaits(t, ns, "second", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, v1alpha1.ServiceExportReasonLimitExceeded)
	c.west.AwaitImport(t, ns, "first", map[string][]string{"east": {"10.51.0.7"}})
	c.east.Unexport(t, ns, "first")
	c.east.AwaitExported(t, ns, "second")
	c.west.AwaitImport(t, ns, "second", map[string][]string{"east": {"10.51.0.7"}})
}

// Derived Services leave half of the Service range to the cluster itself.
func TestDerivedServicesLeaveRoom(t *testing.T) {
	c := withEvilMember(t)
	small := harness.Fresh(t, 1, func(o *controlplane.Options) { o.ServiceCIDR = "10.253.0.0/27" })[0]
	m, err := c.Join(t.Context(), small, "small", fleet.Options{})
	must(t, err)
	must(t, m.Start())
	t.Cleanup(m.Stop)
	ns := fleet.NewNamespace(t, m)
	for i := range 32 {
		c.publish(t, types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("s%d", i)}, "10.6.6.6")
	}
	count := func(derived bool) (int, error) {
		var services corev1.ServiceList
		err := m.Client.List(t.Context(), &services, client.InNamespace(ns))
		n := 0
		for i := range services.Items {
			if _, ok := objects.DerivedFrom(&services.Items[i]); ok == derived {
				n++
			}
		}
		return n, err
	}
	const share = 16
	harness.Eventually(t, "the share is used, and an import says so", func() error {
		if n, err := count(true); err != nil || n < share {
			return fmt.Errorf("%d derived Services (%w)", n, err)
		}
		var list mcsv1beta1.ServiceImportList
		if err := m.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
			if ready != nil && strings.Contains(ready.Message, "may take half of this cluster's Service range (16 addresses)") {
				return nil
			}
		}
		return fmt.Errorf("no import says that the share is used")
	})
	for i := range 8 {
		must(t, m.Client.Create(t.Context(), fleet.NewService(ns, fmt.Sprintf("own%d", i))))
	}
	if n, err := count(true); err != nil || n != share {
		t.Errorf("%d derived Services, want %d (%v)", n, share, err)
	}
}
