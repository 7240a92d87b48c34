package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMembersWriteTheirOwn(t *testing.T) {
	b := newBroker(t)
	for _, member := range members {
		id := string(member)
		t.Run(id, func(t *testing.T) {
			c, ctx := b.as[id], t.Context()
			for _, o := range []client.Object{b.record("web", "shop", id), b.slice("web", "shop", id), b.lease(id, id)} {
				if err := c.Create(ctx, o); err != nil {
					t.Errorf("create: %v", err)
				}
				o.SetAnnotations(map[string]string{"touched": "yes"})
				if err := c.Update(ctx, o); err != nil {
					t.Errorf("update: %v", err)
				}
				if err := c.Delete(ctx, o); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
			var cluster v1alpha1.Cluster
			b.must(t, c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: id}, &cluster))
			cluster.Status.AgentVersion = "v1"
			if err := c.Status().Update(ctx, &cluster); err != nil {
				t.Errorf("status of its cluster: %v", err)
			}
		})
	}
	t.Run("granted namespaces", func(t *testing.T) {
		check(t, b.as["sys"].Create(t.Context(), b.record("dns", "kube-system", "sys"), client.DryRunAll), "")
		check(t, b.as["sys"].Create(t.Context(), b.slice("dns", "kube-system", "sys"), client.DryRunAll), "")
		check(t, b.as["sys"].Create(t.Context(), b.serviceImport("dns", "kube-system", "sys"), client.DryRunAll), "")
	})
	t.Run("the longest names", func(t *testing.T) {
		o := b.slice(long63, strings.Repeat("n", 63), "east")
		o.Name = strings.TrimSuffix(o.Name, "0123abcd") + strings.Repeat("f", 61)
		check(t, b.as["east"].Create(t.Context(), o, client.DryRunAll), "")
	})
}

func TestMembersShareAggregates(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	si := b.serviceImport("web", "shop", "east")
	b.must(t, b.as["east"].Create(ctx, si))

	t.Run("a first clusterset IP is added", func(t *testing.T) {
		si.Spec.IPs = []string{"243.0.0.7"}
		check(t, b.as["east"].Update(ctx, si), "")
	})
	t.Run("another member adds one of the other family", func(t *testing.T) {
		si.Spec.IPs = append(si.Spec.IPs, "fd00:243::1:7")
		relabelled(si, v1alpha1.LabelWrittenBy, "east2")
		check(t, b.as["east2"].Update(ctx, si), "")
	})
	t.Run("any member writes the rest", func(t *testing.T) {
		si.Spec.Ports[0].Port = 81
		relabelled(si, v1alpha1.LabelWrittenBy, "a.b")
		check(t, b.as["a.b"].Update(ctx, si), "")
	})
	t.Run("each lists itself", func(t *testing.T) {
		for _, id := range []string{"east2", "east"} {
			si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: id})
			check(t, b.as[id].Status().Update(ctx, si), "")
		}
		si.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "east"}}
		check(t, b.as["east2"].Status().Update(ctx, si), "")
	})
	t.Run("the last exporter deletes", func(t *testing.T) {
		check(t, b.as["a.b"].Delete(ctx, si), "is still exported by east")
		check(t, b.as["east"].Delete(ctx, si), "")
	})
}

// attack is a request of a member that must be denied. want is a part of the error.
type attack struct {
	name string
	as   string
	do   func(c client.Client) error
	want string
}

func TestMembersAreConfined(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	for _, victim := range []string{"east2", "b.east", "a.b", "a"} {
		for _, o := range []client.Object{b.record("web", "shop", victim), b.slice("web", "shop", victim), b.lease(victim, victim)} {
			b.must(t, b.as[victim].Create(ctx, o))
		}
	}
	for _, o := range []client.Object{b.record("web", "shop", "east"), b.slice("web", "shop", "east"), b.lease("east", "east")} {
		b.must(t, b.as["east"].Create(ctx, o))
	}
	shared := b.serviceImport("web", "shop", "east2", "243.1.0.7")
	b.must(t, b.as["east2"].Create(ctx, shared))
	shared.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "east"}, {Cluster: "east2"}}
	b.must(t, b.admin.Status().Update(ctx, shared))
	b.must(t, b.admin.Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: b.meta("kubernetes-x", nil), AddressType: "IPv4"}))

	for _, a := range slices.Concat(b.attacksOnOwned(t), b.attacksOnSlices(t), b.attacksOnAggregates(t, shared), b.attacksOnGrants(t)) {
		t.Run(a.name, func(t *testing.T) {
			check(t, a.do(b.as[a.as]), a.want)
		})
	}
}

func (b *broker) attacksOnOwned(t *testing.T) []attack {
	touch := func(o client.Object) { o.SetAnnotations(map[string]string{"x": "y"}) }
	give := func(to string) func(client.Object) {
		return func(o client.Object) { relabelled(o, mcsv1beta1.LabelSourceCluster, to) }
	}
	var all []attack
	for _, pair := range [][2]string{{"east", "east2"}, {"east", "b.east"}, {"a", "a.b"}, {"a.b", "a"}, {"b.east", "east2"}} {
		attacker, victim := pair[0], pair[1]
		own := "may write only objects labelled multicluster.kubernetes.io/source-cluster: " + attacker
		lease := "is not the lease of cluster " + attacker
		for action, do := range map[string]func(client.Client) error{
			"update": change(t, client.Object(b.lease(victim, victim)), touch),
			"take":   change(t, client.Object(b.lease(victim, victim)), give(attacker)),
			"delete": b.remove(t, b.lease(victim, victim)), "create": b.create(t, b.lease(victim+"x", attacker)),
		} {
			all = append(all, attack{attacker + " against " + victim + ": " + action + " lease", attacker, do, lease})
		}
		for kind, o := range map[string]client.Object{
			"record": b.record("web", "shop", victim), "slice": b.slice("web", "shop", victim),
		} {
			name := attacker + " against " + victim + ": "
			all = append(all,
				attack{name + "update " + kind, attacker, change(t, o, touch), "belongs to cluster " + victim},
				attack{name + "take " + kind, attacker, change(t, o, give(attacker)), own},
				attack{name + "delete " + kind, attacker, b.remove(t, o), own})
		}
		all = append(all,
			attack{"create record as " + victim + " by " + attacker, attacker, b.create(t, b.record("api", "shop", victim)), own},
			attack{"create slice as " + victim + " by " + attacker, attacker, b.create(t, b.slice("api", "shop", victim)), own},
			attack{"create record named for " + victim + " by " + attacker, attacker,
				b.create(t, relabelled(b.record("api", "shop", victim), mcsv1beta1.LabelSourceCluster, attacker)),
				"must be named api.shop." + attacker},
			attack{"create slice named for " + victim + " by " + attacker, attacker,
				b.create(t, relabelled(b.slice("api", "shop", victim), mcsv1beta1.LabelSourceCluster, attacker)),
				"must be named api.shop." + attacker + ".<hash>"})
	}
	return append(all,
		attack{"give a record away", "east", change(t, client.Object(b.record("web", "shop", "east")), give("east2")),
			"cannot give an object to another cluster"},
		attack{"give a slice away", "east", change(t, client.Object(b.slice("web", "shop", "east")), give("east2")),
			"cannot give an object to another cluster"},
		attack{"give the lease away", "east", change(t, client.Object(b.lease("east", "east")), give("east2")),
			"must keep the label multicluster.kubernetes.io/source-cluster: east"},
		attack{"no source", "east", b.create(t, relabelled(b.record("api", "shop", "east"), mcsv1beta1.LabelSourceCluster, "")),
			"belongs to no cluster"},
		attack{"no labels", "east", b.create(t, with(b.lease("east", "east"), func(o *coordinationv1.Lease) { o.Labels = nil })),
			"must keep the label multicluster.kubernetes.io/source-cluster: east"},
		attack{"take an object of no cluster", "east",
			change(t, &discoveryv1.EndpointSlice{ObjectMeta: b.meta("kubernetes-x", nil)}, func(o *discoveryv1.EndpointSlice) {
				o.Labels = labels("web", "shop", "east")
			}), "belongs to no cluster"},
		attack{"delete an object of no cluster", "east", b.remove(t, &discoveryv1.EndpointSlice{ObjectMeta: b.meta("kubernetes-x", nil)}),
			"belongs to no cluster"},
		attack{"delete all objects of another cluster at once", "east", func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), &v1alpha1.ExportRecord{}, client.InNamespace(b.ns),
				client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "east2"})
		}, "belongs to cluster east2"},
		attack{"record with an owner", "east", b.create(t, owned(b.record("api", "shop", "east"))), "neither ownerReferences nor finalizers"},
		attack{"record with a finalizer", "east", b.create(t, finalized(b.record("api", "shop", "east"))),
			"neither ownerReferences nor finalizers"},
		attack{"lease with a finalizer", "east", change(t, client.Object(b.lease("east", "east")), func(o client.Object) { finalized(o) }),
			"neither ownerReferences nor finalizers"},
		attack{"slice with an owner", "east", b.create(t, owned(b.slice("api", "shop", "east"))), "neither ownerReferences nor finalizers"},
		attack{"record labelled for another service", "east",
			b.create(t, relabelled(b.record("api", "shop", "east"), mcsv1beta1.LabelServiceName, "web")), "must be named web.shop.east"},
		attack{"record labelled for another namespace", "east",
			b.create(t, relabelled(b.record("api", "shop", "east"), v1alpha1.LabelServiceNamespace, "bank")), "must be named api.bank.east"},
		attack{"record without its namespace", "east",
			b.create(t, relabelled(b.record("api", "shop", "east"), v1alpha1.LabelServiceNamespace, "")), "needs the labels"},
		attack{"record of another through dots in labels", "east",
			b.create(t, with(b.record("api", "shop", "b.east"), func(o *v1alpha1.ExportRecord) {
				o.Labels = labels("api.shop", "b", "east")
			})), "without dots"},
		attack{"write its own cluster object", "east", change(t, &v1alpha1.Cluster{ObjectMeta: b.meta("east", nil)}, func(o *v1alpha1.Cluster) {
			o.Spec.ClusterSetIPBlocks = nil
		}), "may only write the status of Cluster east"},
		attack{"write another's cluster status", "east", func(c client.Client) error {
			o := &v1alpha1.Cluster{}
			b.must(t, c.Get(t.Context(), client.ObjectKey{Namespace: b.ns, Name: "east2"}, o))
			o.Status.AgentVersion = "stolen"
			return c.Status().Update(t.Context(), o, client.DryRunAll)
		}, "may only write the status of Cluster east"},
		attack{"delete another's cluster object", "east", b.remove(t, &v1alpha1.Cluster{ObjectMeta: b.meta("east2", nil)}),
			"is written by the admin of the broker"},
		attack{"invite a cluster", "east", b.create(t, &v1alpha1.Cluster{ObjectMeta: b.meta("evil", nil)}),
			"is written by the admin of the broker"},
		attack{"write the clusterset", "east", b.create(t, &v1alpha1.ClusterSet{ObjectMeta: b.meta("evil", nil), Spec: v1alpha1.ClusterSetSpec{
			ClusterSetIP: v1alpha1.ClusterSetIPSettings{Ranges: []v1alpha1.CIDR{"243.0.0.0/8"}}}}), "clustersets evil is written by the admin"},
	)
}

func (b *broker) attacksOnSlices(t *testing.T) []attack {
	named := func(name string) *discoveryv1.EndpointSlice {
		return with(b.slice("web", "shop", "a"), func(o *discoveryv1.EndpointSlice) { o.Name = name })
	}
	return []attack{
		{"slice in the names of a longer id", "a", b.create(t, named("web.shop.a.b.0123abcd")), "with no dot in the hash"},
		{"slice without a hash", "a", b.create(t, named("web.shop.a")), "must be named web.shop.a.<hash>"},
		{"slice of a prefix", "a", b.create(t, named("web.shop.ab.0123")), "must be named web.shop.a.<hash>"},
		{"slice under any name", "a", b.create(t, named("kubernetes")), "must be named web.shop.a.<hash>"},
		{"slice behind a Service of the broker", "a",
			b.create(t, relabelled(b.slice("web", "shop", "a"), discoveryv1.LabelServiceName, "kubernetes")),
			"must not have the label kubernetes.io/service-name without a dot"},
		{"slice moved to another service", "a", change(t, b.slice("web", "shop", "a"), func(o *discoveryv1.EndpointSlice) {
			relabelled(o, mcsv1beta1.LabelServiceName, "api")
		}), "must be named api.shop.a.<hash>"},
		{"slice moved behind a Service of the broker", "a", change(t, b.slice("web", "shop", "a"), func(o *discoveryv1.EndpointSlice) {
			relabelled(o, discoveryv1.LabelServiceName, "kubernetes")
		}), "must not have the label kubernetes.io/service-name without a dot"},
	}
}

func (b *broker) attacksOnAggregates(t *testing.T, shared *mcsv1beta1.ServiceImport) []attack {
	edit := func(f func(*mcsv1beta1.ServiceImport)) func(client.Client) error {
		return change(t, shared.DeepCopy(), func(o *mcsv1beta1.ServiceImport) {
			relabelled(o, v1alpha1.LabelWrittenBy, "east")
			f(o)
		})
	}
	ips := func(ips ...string) func(client.Client) error {
		return edit(func(o *mcsv1beta1.ServiceImport) { o.Spec.IPs = ips })
	}
	status := func(f func(*mcsv1beta1.ServiceImportStatus)) func(client.Client) error {
		return func(c client.Client) error {
			o := shared.DeepCopy()
			b.must(t, c.Get(t.Context(), client.ObjectKeyFromObject(shared), o))
			f(&o.Status)
			return c.Status().Update(t.Context(), o, client.DryRunAll)
		}
	}
	exporters := func(ids ...string) func(client.Client) error {
		return status(func(s *mcsv1beta1.ServiceImportStatus) {
			s.Clusters = nil
			for _, id := range ids {
				s.Clusters = append(s.Clusters, mcsv1beta1.ClusterStatus{Cluster: id})
			}
		})
	}
	fresh := func(ips ...string) func(client.Client) error {
		return b.create(t, b.serviceImport("api", "shop", "east", ips...))
	}
	return []attack{
		{"add a second clusterset IP of the family", "east", ips("243.1.0.7", "243.0.0.8"), "allowed is one per address family"},
		{"write a clusterset IP in another form", "east", fresh("fd00:243:0::0:9"), "in canonical form"},
		{"write nonsense", "east", fresh("vip"), "vip"},
		{"remove another from the exporters", "east", exporters("east"), "may add or remove only itself"},
		{"remove all exporters", "a", exporters(), "may add or remove only itself"},
		{"add another to the exporters", "a", exporters("a", "b.east", "east", "east2"), "may add or remove only itself"},
		{"replace another in the exporters", "a", exporters("a", "east", "west"), "may add or remove only itself"},
		{"write a condition", "east", status(func(s *mcsv1beta1.ServiceImportStatus) {
			s.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Evil", LastTransitionTime: metav1.Now()}}
		}), "may write only the exporters"},
		{"delete what another exports", "east", b.remove(t, shared), "is still exported by east2"},
		{"delete what others export", "a", b.remove(t, shared), "is still exported by east, east2"},
		{"aggregate with a finalizer", "east", edit(func(o *mcsv1beta1.ServiceImport) { finalized(o) }),
			"neither ownerReferences nor finalizers"},
		{"aggregate with an owner", "east", edit(func(o *mcsv1beta1.ServiceImport) { owned(o) }), "neither ownerReferences nor finalizers"},
		{"aggregate under another name", "east", b.create(t, with(b.serviceImport("api", "shop", "east"), func(o *mcsv1beta1.ServiceImport) {
			o.Name = "api.bank"
		})), "must be named <service>.<namespace>"},
		{"aggregate relabelled", "east", edit(func(o *mcsv1beta1.ServiceImport) { relabelled(o, v1alpha1.LabelServiceNamespace, "bank") }),
			"must be named <service>.<namespace>"},
		{"aggregate in another's name", "east", b.create(t, b.serviceImport("api", "shop", "east2", "243.1.0.9")),
			"seamark.dev/written-by: east"},
		{"aggregate without a writer", "east",
			b.create(t, relabelled(b.serviceImport("api", "shop", "x", "243.1.0.9"), v1alpha1.LabelWrittenBy, "")),
			"seamark.dev/written-by: east"},
	}
}

func (b *broker) attacksOnGrants(t *testing.T) []attack {
	var all []attack
	for _, ns := range []string{"kube-system", "kube-public", "seamark-system"} {
		const allowed = "its Cluster object allows all but kube-* and seamark-*"
		all = append(all,
			attack{"record of " + ns, "east", b.create(t, b.record("web", ns, "east")), allowed},
			attack{"slice of " + ns, "east", b.create(t, b.slice("web", ns, "east")), allowed},
			attack{"aggregate of " + ns, "east", b.create(t, b.serviceImport("web", ns, "east")), allowed})
	}
	const allowed = "allows kube-system, shop (spec.allowedNamespaces)"
	return append(all,
		attack{"record outside the list", "sys", b.create(t, b.record("web", "bank", "sys")), allowed},
		attack{"slice outside the list", "sys", b.create(t, b.slice("web", "bank", "sys")), allowed},
		attack{"aggregate outside the list", "sys", b.create(t, b.serviceImport("web", "bank", "sys")), allowed},
		attack{"another system namespace", "sys", b.create(t, b.record("web", "kube-public", "sys")), allowed})
}

// A change of the Cluster object applies to the member's next write. Without a Cluster object all
// writes of the member are denied.
func TestGrantsFollowTheCluster(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	stored, slice := b.record("web", "shop", "east"), b.slice("web", "shop", "east")
	b.must(t, b.as["east"].Create(ctx, stored))
	b.must(t, b.as["east"].Create(ctx, slice))
	var cluster v1alpha1.Cluster
	b.must(t, b.admin.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "east"}, &cluster))
	cluster.Spec.AllowedNamespaces = []string{"bank"}
	b.must(t, b.admin.Update(ctx, &cluster))
	eventuallyDenied := func(state, fragment string) {
		harness.Eventually(t, state, func() error {
			err := b.as["east"].Create(ctx, b.record("api", "shop", "east"), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), fragment) {
				return fmt.Errorf("got %w", errors.Join(errors.New("no such denial"), err))
			}
			return nil
		})
	}
	eventuallyDenied("a namespace that is no longer granted is denied", "allows bank")
	check(t, b.as["east"].Update(ctx, with(stored, func(o *v1alpha1.ExportRecord) { o.Spec.Ports[0].Port = 81 })), "allows bank")
	check(t, b.as["east"].Create(ctx, b.slice("api", "shop", "east"), client.DryRunAll), "allows bank")
	// Importers ignore the slice. Its namespace stays what it was.
	slice.Endpoints[0].Addresses = []string{"10.1.2.4"}
	check(t, b.as["east"].Update(ctx, slice), "")
	check(t, b.as["east"].Update(ctx, relabelled(slice.DeepCopy(), v1alpha1.LabelServiceNamespace, "bank")), "must be named web.bank.east")
	check(t, b.as["east"].Delete(ctx, stored), "")
	b.must(t, b.admin.Delete(ctx, &cluster))
	eventuallyDenied("a member without a Cluster is denied", "no params found")
	check(t, b.as["east2"].Create(ctx, b.record("api", "shop", "east2"), client.DryRunAll), "")
}
