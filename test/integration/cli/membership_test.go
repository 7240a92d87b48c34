package cli

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestRunningAgainWritesNothing(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-again", "")
	b.invite("b-again", "east", "")
	b.must("join --no-install %s --context east", b.path("east.yaml"))
	b.unchanged(t, "deploy", func() { b.must("broker deploy --context hub -n b-again") })
	b.unchanged(t, "deploy with the same settings", func() {
		b.must("broker deploy --context hub -n b-again --clusterset clusterset --enable-clusterset-ip --clusterset-ip-cidr-range fd00:243::/48,243.0.0.0/8")
	})
	b.unchanged(t, "join", func() { b.must("join --no-install %s --context east", b.path("east.yaml")) })
	b.unchanged(t, "a renewal", func() { b.must("broker invite east --context hub -n b-again --renew --file -") })
	b.unchanged(t, "list", func() { b.must("cluster list --context hub -n b-again") })
	b.unchanged(t, "remove of nobody", func() { b.must("cluster remove nobody --context hub -n b-again") })
	b.unchanged(t, "leave of a cluster that is no member", func() { b.must("leave --context west") })
}

// What Join writes is what agents and other tools look for.
func TestJoinWritesIdentityAndMembership(t *testing.T) {
	b := newBed(t)
	ctx, east := t.Context(), b.clients["east"]
	newBroker(b, "b-join", "--clusterset prod")
	m := b.invite("b-join", "east", "")
	b.must("join --no-install %s --context east --dataplane nftables --enable-clusterset-ip=false", b.path("east.yaml"))
	secret := &corev1.Secret{}
	if err := east.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret); err != nil {
		t.Fatal(err)
	}
	stored, err := objects.MembershipFrom(secret)
	if err != nil || stored.Token != m.Token || stored.DataPlane != "nftables" || ptr.Deref(stored.UseClusterSetIP, true) {
		t.Errorf("stored %+v (%v)", stored, err)
	}
	for name, want := range map[string]string{
		aboutv1beta1.PropertyClusterID: "east", aboutv1beta1.PropertyClusterIDOld: "east", aboutv1beta1.PropertyClusterSet: "prod",
	} {
		p := &aboutv1beta1.ClusterProperty{}
		if err := east.Get(ctx, types.NamespacedName{Name: name}, p); err != nil || p.Spec.Value != want {
			t.Errorf("ClusterProperty %s is %q (%v), want %q", name, p.Spec.Value, err, want)
		}
	}
	for name, want := range map[string]string{claimsv1.ClaimClusterID: "east", claimsv1.ClaimClusterSet: "prod"} {
		c := &claimsv1.ClusterClaim{}
		if err := east.Get(ctx, types.NamespacedName{Name: name}, c); err != nil || c.Spec.Value != want {
			t.Errorf("ClusterClaim %s is %q (%v), want %q", name, c.Spec.Value, err, want)
		}
	}
	// Joining again keeps what the flags do not say, and brings what they do.
	b.must("join --no-install %s --context east", b.path("east.yaml"))
	if err := east.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if stored, err = objects.MembershipFrom(secret); err != nil || stored.DataPlane != "nftables" {
		t.Errorf("stored %+v (%v)", stored, err)
	}
	text, err := os.ReadFile(b.path("east.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if o := b.runWith(string(text), "join --no-install - --context east --dataplane none"); o.code != 0 {
		t.Errorf("join from standard input: %+v", o)
	}
	if err := east.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || string(secret.Data["dataPlane"]) != "none" {
		t.Errorf("the data plane is %s (%v)", secret.Data["dataPlane"], err)
	}
}

// Whatever is wrong, it is said before anything is written.
func TestJoinRefusals(t *testing.T) {
	b := newBed(t)
	ctx, hub := t.Context(), b.clients["hub"]
	newBroker(b, "b-refuse", "")
	newBroker(b, "b-other", "--clusterset other")
	file := func(m objects.Membership) string {
		text, err := brokeradmin.EncodeInvitation(m)
		if err != nil {
			t.Fatal(err)
		}
		path := b.path("changed.yaml")
		if err := brokeradmin.WriteInvitation(path, text, true); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refused := func(what, path string, parts ...string) {
		t.Helper()
		b.unchanged(t, what, func() { b.refused("join --no-install "+path+" --context east", parts...) })
	}
	m := b.invite("b-refuse", "east", "")

	bad := m
	bad.Token = m.Token[:len(m.Token)-8] + "tampered"
	refused("a bad credential", file(bad), "does not accept the credential", "seamark broker invite east --renew")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bad = m
	bad.Server = "https://" + closed.Addr().String()
	_ = closed.Close()
	refused("an unreachable broker", file(bad), "cannot be asked from here", "--server")

	bad = m
	bad.CAData = b.planes["east"].Config().CAData
	refused("another CA", file(bad), "cannot be asked from here")

	bad = m
	bad.ClusterSet = "renamed"
	refused("another clusterset's name", file(bad), "does not know")

	// Somebody else's heartbeat.
	lease := &coordinationv1.Lease{}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: "b-refuse", Name: "east"}, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To("another"), ptr.To[int32](600), ptr.To(metav1.NowMicro())
	if err := hub.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}
	refused("an id in use", b.path("east.yaml"), "used by another cluster", "seamark cluster remove east")
	lease.Spec.HolderIdentity = nil
	if err := hub.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}

	b.must("join --no-install %s --context east", b.path("east.yaml"))
	b.must("broker invite east --context hub -n b-other --file %s", b.path("other.yaml"))
	refused("another clusterset", b.path("other.yaml"), "member of clusterset clusterset", "seamark leave")
	b.unchanged(t, "joining another clusterset in one step", func() {
		b.refused("join --no-install --broker-context hub --broker-namespace b-other --context east", "member of clusterset clusterset", "seamark leave")
	})

	// A member that was removed cannot come back with what it has.
	b.must("leave --context east")
	b.finalize("east")
	b.must("cluster remove east --context hub -n b-refuse")
	harness.Eventually(t, "a removed member is refused", func() error {
		if o := b.run("join --no-install " + b.path("east.yaml") + " --context east"); o.code != 1 || !strings.Contains(o.err, "seamark broker invite east") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

func TestJoinInOneStep(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-step", "")
	type joined struct {
		ClusterID string `json:"clusterID"`
	}
	uid := func(where string) string {
		ns := &corev1.Namespace{}
		if err := b.clients[where].Get(t.Context(), types.NamespacedName{Name: metav1.NamespaceSystem}, ns); err != nil {
			t.Fatal(err)
		}
		return string(ns.UID)
	}
	const line = "join --no-install --broker-context hub --broker-namespace b-step --context "
	got := decode[joined](b, line+"east")
	if got.ClusterID != uid("east") {
		t.Errorf("the default id is %s, want %s", got.ClusterID, uid("east"))
	}
	// Again, with the id the cluster has by now.
	if again := decode[joined](b, line+"east"); again.ClusterID != got.ClusterID {
		t.Errorf("joined again as %s", again.ClusterID)
	}
	b.must(line + "west --clusterid west --clusterset-ip-cidr 243.40.0.0/16")
	members := decode[listing](b, "cluster list --context hub -n b-step").Clusters
	if len(members) != 2 {
		t.Fatalf("%+v", members)
	}
	for _, m := range members {
		if m.ClusterID == "west" && m.Blocks[0] != "243.40.0.0/16" {
			t.Errorf("west has %v", m.Blocks)
		}
	}
	// An id that another cluster was invited with.
	b.invite("b-step", "north", "")
	b.must("leave --context east --broker-context hub --broker-namespace b-step")
	b.finalize("east")
	b.unchanged(t, "taking an invited id", func() {
		b.refused(line+"east --clusterid north", "the id is in use", "seamark cluster remove north")
	})
	b.unchanged(t, "taking a member's id", func() { b.refused(line+"east --clusterid west", "the id is in use") })
	// What was invited for this very cluster is taken up again, as after an interruption.
	b.must(line + "east --clusterid south")
	b.must("leave --context east")
	b.finalize("east")
	b.must(line + "east --clusterid south")
	if o := b.run("leave --context east --broker-context nowhere"); o.code != 1 {
		t.Errorf("%+v", o)
	}
	if stored := b.versions("east")["Secret seamark-system/seamark-broker"]; stored == "" {
		t.Error("a leave that could not begin took the credential away")
	}
}

func TestRemove(t *testing.T) {
	b := newBed(t)
	ctx, hub := t.Context(), b.clients["hub"]
	newBroker(b, "b-remove", "")
	east := b.invite("b-remove", "east", "")
	b.invite("b-remove", "west", "")
	shared, alone := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "alone"}
	b.publish("b-remove", shared, "243.0.0.1", "east", "west")
	b.publish("b-remove", alone, "243.0.0.2", "east")

	removed := decode[brokeradmin.RemoveMemberResult](b, "cluster remove east --context hub -n b-remove")
	if want := (brokeradmin.RemoveMemberResult{ClusterID: "east", Found: true, Records: 2, Slices: 2, ServicesLeft: 1, ServicesEnded: 1}); removed != want {
		t.Errorf("got %+v, want %+v", removed, want)
	}
	si := &mcsv1beta1.ServiceImport{}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: "b-remove", Name: objects.AggregateName(shared)}, si); err != nil {
		t.Fatal(err)
	}
	if len(si.Status.Clusters) != 1 || si.Status.Clusters[0].Cluster != "west" || fmt.Sprint(si.Spec.IPs) != "[243.0.0.1]" {
		t.Errorf("the service that goes on: %v at %v", si.Status.Clusters, si.Spec.IPs)
	}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: "b-remove", Name: objects.AggregateName(alone)}, si); !apierrors.IsNotFound(err) {
		t.Errorf("the service that ended: %v", err)
	}
	for key := range b.versions("hub") {
		if strings.Contains(key, "b-remove") && strings.Contains(key, "east") {
			t.Errorf("%s is left", key)
		}
	}
	if err := tokenWorks(t, east); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("its credential still works: %v", err)
	}
	if again := decode[brokeradmin.RemoveMemberResult](b, "cluster remove east --context hub -n b-remove"); again.Found {
		t.Errorf("a second removal found %+v", again)
	}
	// Interrupted after the records: the aggregates that name it are put right by the next.
	b.invite("b-remove", "east", "--force")
	b.publish("b-remove", alone, "243.0.0.2", "east")
	if err := hub.Delete(ctx, record("b-remove", "east", alone)); err != nil {
		t.Fatal(err)
	}
	if removed = decode[brokeradmin.RemoveMemberResult](b, "cluster remove east --context hub -n b-remove"); removed.ServicesEnded != 1 || removed.Slices != 1 || removed.Records != 0 {
		t.Errorf("%+v", removed)
	}
}

func TestLeave(t *testing.T) {
	b := newBed(t)
	ctx, hub, east := t.Context(), b.clients["hub"], b.clients["east"]
	newBroker(b, "b-leave", "")
	b.invite("b-leave", "west", "")
	b.namespace("leaving", "east", "hub")
	shared, alone := types.NamespacedName{Namespace: "leaving", Name: "web"}, types.NamespacedName{Namespace: "leaving", Name: "alone"}
	prepare := func() {
		b.t.Helper()
		b.invite("b-leave", "east", "--force")
		b.must("join --no-install %s --context east", b.path("east.yaml"))
		b.publish("b-leave", shared, "243.0.0.1", "east", "west")
		b.publish("b-leave", alone, "243.0.0.2", "east")
		imported := &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "web", Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
		}
		users := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "users"}, Spec: imported.Spec}
		slices := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "leaving", Name: "web.west.1", Labels: map[string]string{discoveryv1.LabelManagedBy: objects.ManagedBy}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		}
		// As if a broker were in this cluster too.
		b.create("east", imported, users, slices, aggregate("leaving", "x", shared), slice("leaving", "x", shared),
			&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "web"}})
	}
	prepare()
	left := decode[brokeradmin.LeaveResult](b, "leave --context east")
	want := brokeradmin.LeaveResult{Member: true, ClusterID: "east", ClusterSet: "clusterset", Withdrawn: true, Records: 2, Slices: 2, Imports: 1, ImportedSlices: 1, Exports: 1}
	if left != want {
		t.Errorf("got %+v, want %+v", left, want)
	}
	for key := range b.versions("hub") {
		if (strings.HasPrefix(key, "ExportRecord b-leave") || strings.HasPrefix(key, "EndpointSlice b-leave")) && strings.Contains(key, ".east") {
			t.Errorf("%s is left on the broker", key)
		}
	}
	si := &mcsv1beta1.ServiceImport{}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: "b-leave", Name: objects.AggregateName(alone)}, si); !apierrors.IsNotFound(err) {
		t.Errorf("the aggregate nobody exports: %v", err)
	}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: "b-leave", Name: objects.AggregateName(shared)}, si); err != nil || len(si.Spec.IPs) != 1 {
		t.Errorf("the aggregate others export: %v (%v)", si.Spec.IPs, err)
	}
	here := b.versions("east")
	for _, gone := range []string{
		"ServiceImport leaving/web", "EndpointSlice leaving/web.west.1", "Secret seamark-system/seamark-broker",
		"ClusterProperty /clusterset.k8s.io", "ClusterClaim /clusterset.k8s.io",
	} {
		if here[gone] != "" {
			t.Errorf("%s is left", gone)
		}
	}
	for _, kept := range []string{
		"ServiceImport leaving/users", "ServiceImport leaving/web.leaving", "EndpointSlice leaving/" + objects.SliceName(shared, "x", "one"),
		"ServiceExport leaving/web", "ClusterProperty /cluster.clusterset.k8s.io", "ClusterClaim /id.k8s.io",
	} {
		if here[kept] == "" {
			t.Errorf("%s is gone", kept)
		}
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := east.Get(ctx, types.NamespacedName{Namespace: "leaving", Name: "web"}, export); err != nil {
		t.Fatal(err)
	}
	if ready := meta.FindStatusCondition(export.Status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionFalse ||
		ready.Reason != string(v1alpha1.ServiceExportReasonNotMember) || ready.Message != brokeradmin.LeftMessage {
		t.Errorf("the ServiceExport says %+v", ready)
	}
	namespace := &corev1.Namespace{}
	if err := east.Get(ctx, types.NamespacedName{Name: objects.AgentNamespace}, namespace); err == nil && namespace.DeletionTimestamp == nil {
		t.Error("the namespace that join made is not deleted")
	}

	// Without the broker everything local goes all the same, and the admin is told what to do.
	b.finalize("east")
	b.must("cluster remove east --context hub -n b-leave")
	prepare()
	secret := &corev1.Secret{}
	if err := east.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["server"] = []byte("https://127.0.0.1:1")
	if err := east.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	b.create("east", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "somebodys"}})
	started := time.Now()
	o := b.must("leave --context east")
	if !strings.Contains(o.out, "NOT from the broker") || !strings.Contains(o.out, "seamark cluster remove east") {
		t.Errorf("it says:\n%s", o.out)
	}
	if time.Since(started) > 40*time.Second {
		t.Errorf("it took %s", time.Since(started))
	}
	if here := b.versions("east"); here["ServiceImport leaving/web"] != "" || here["ConfigMap seamark-system/somebodys"] == "" {
		t.Error("imports must go and what others put into the namespace must stay")
	}
	if err := east.Get(ctx, types.NamespacedName{Name: objects.AgentNamespace}, namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("a namespace with something in it was deleted (%v)", err)
	}
	if err := east.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "somebodys"}}); err != nil {
		t.Fatal(err)
	}
}
