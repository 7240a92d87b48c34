package cli

import (
	"fmt"
	"net"
	"os"
	"slices"
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
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestRepeatedCommandsWriteNothing(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-again", "")
	env.invite("b-again", "east", "")
	env.mustRun("join --no-install %s --context east", env.path("east.yaml"))
	env.expectNoWrites(t, "deploy", func() { env.mustRun("broker deploy --context broker -n b-again") })
	env.expectNoWrites(t, "deploy with the same settings", func() {
		env.mustRun("broker deploy --context broker -n b-again --clusterset clusterset --enable-clusterset-ip " +
			"--clusterset-ip-cidr-range fd00:243::/48,243.0.0.0/8")
	})
	env.expectNoWrites(t, "join", func() { env.mustRun("join --no-install %s --context east", env.path("east.yaml")) })
	env.expectNoWrites(t, "a renewal", func() { env.mustRun("broker invite east --context broker -n b-again --renew --file -") })
	env.expectNoWrites(t, "list", func() { env.mustRun("cluster list --context broker -n b-again") })
	env.expectNoWrites(t, "remove of an unknown cluster", func() { env.mustRun("cluster remove unknown --context broker -n b-again") })
	env.expectNoWrites(t, "leave of a cluster that is no member", func() { env.mustRun("leave --context west") })
}

// Join writes the membership for the agent, and the identity of the cluster for other tools.
func TestJoinWritesIdentityAndMembership(t *testing.T) {
	env := newEnvironment(t)
	ctx, east := t.Context(), env.clients["east"]
	newBroker(env, "b-join", "--clusterset prod")
	m := env.invite("b-join", "east", "")
	env.mustRun("join --no-install %s --context east --dataplane nftables --enable-clusterset-ip=false", env.path("east.yaml"))
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
	// Joining again keeps settings without a flag and changes those with one.
	env.mustRun("join --no-install %s --context east", env.path("east.yaml"))
	if err := east.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if stored, err = objects.MembershipFrom(secret); err != nil || stored.DataPlane != "nftables" {
		t.Errorf("stored %+v (%v)", stored, err)
	}
	text, err := os.ReadFile(env.path("east.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if o := env.runWith(string(text), "join --no-install - --context east --dataplane none"); o.Code != 0 {
		t.Errorf("join from standard input: %+v", o)
	}
	if err := east.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil || string(secret.Data["dataPlane"]) != "none" {
		t.Errorf("the data plane is %s (%v)", secret.Data["dataPlane"], err)
	}
}

// Join reports each problem before it writes anything.
func TestJoinRefusals(t *testing.T) {
	env := newEnvironment(t)
	ctx, broker := t.Context(), env.clients["broker"]
	newBroker(env, "b-refuse", "")
	newBroker(env, "b-other", "--clusterset other")
	file := func(m objects.Membership) string {
		text, err := brokeradmin.EncodeInvitation(m)
		if err != nil {
			t.Fatal(err)
		}
		path := env.path("changed.yaml")
		if err := brokeradmin.WriteInvitation(path, text, true); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refuseJoin := func(what, path string, parts ...string) {
		t.Helper()
		env.expectNoWrites(t, what, func() { env.mustRefuse("join --no-install "+path+" --context east", parts...) })
	}
	m := env.invite("b-refuse", "east", "")

	bad := m
	bad.Token = m.Token[:len(m.Token)-8] + "tampered"
	refuseJoin("a bad credential", file(bad), "does not accept the credential", "seamark broker invite east --renew")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bad = m
	bad.Server = "https://" + closed.Addr().String()
	_ = closed.Close()
	refuseJoin("an unreachable broker", file(bad), "cannot be asked from here", "--server")

	bad = m
	bad.CAData = env.planes["east"].Config().CAData
	refuseJoin("another CA", file(bad), "cannot be asked from here")

	bad = m
	bad.ClusterSet = "renamed"
	refuseJoin("another clusterset's name", file(bad), "does not know")

	// Another cluster holds the lease of the id.
	lease := &coordinationv1.Lease{}
	if err := broker.Get(ctx, types.NamespacedName{Namespace: "b-refuse", Name: "east"}, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("another"), ptr.To[int32](600)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if err := broker.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}
	refuseJoin("an id in use", env.path("east.yaml"), "used by another cluster", "seamark cluster remove east")
	lease.Spec.HolderIdentity = nil
	if err := broker.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}

	env.mustRun("join --no-install %s --context east", env.path("east.yaml"))
	env.mustRun("broker invite east --context broker -n b-other --file %s", env.path("other.yaml"))
	refuseJoin("another clusterset", env.path("other.yaml"), "member of clusterset clusterset", "seamark leave")
	env.expectNoWrites(t, "joining another clusterset in one step", func() {
		env.mustRefuse("join --no-install --broker-context broker --broker-namespace b-other --context east",
			"member of clusterset clusterset", "seamark leave")
	})

	// A member that was removed cannot join again with its old invitation.
	env.mustRun("leave --context east")
	env.finalizeAgentNamespace("east")
	env.mustRun("cluster remove east --context broker -n b-refuse")
	harness.Eventually(t, "a removed member is refused", func() error {
		o := env.run("join --no-install " + env.path("east.yaml") + " --context east")
		if o.Code != 1 || !strings.Contains(o.Stderr, "seamark broker invite east") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

func TestJoinInOneStep(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-step", "")
	type joined struct {
		ClusterID string `json:"clusterID"`
	}
	uid := func(where string) string {
		ns := &corev1.Namespace{}
		if err := env.clients[where].Get(t.Context(), types.NamespacedName{Name: metav1.NamespaceSystem}, ns); err != nil {
			t.Fatal(err)
		}
		return string(ns.UID)
	}
	const line = "join --no-install --broker-context broker --broker-namespace b-step --context "
	got := decode[joined](env, line+"east")
	if got.ClusterID != uid("east") {
		t.Errorf("the default id is %s, want %s", got.ClusterID, uid("east"))
	}
	// Joining again uses the id that the cluster has now.
	if again := decode[joined](env, line+"east"); again.ClusterID != got.ClusterID {
		t.Errorf("joined again as %s", again.ClusterID)
	}
	env.mustRun(line + "west --clusterid west --clusterset-ip-cidr 243.40.0.0/16")
	members := decode[memberList](env, "cluster list --context broker -n b-step").Clusters
	if len(members) != 2 {
		t.Fatalf("%+v", members)
	}
	if m := env.member("b-step", "west"); m.Blocks[0] != "243.40.0.0/16" {
		t.Errorf("west has %v", m.Blocks)
	}
	// The id of another invitation is refused.
	env.invite("b-step", "north", "")
	env.mustRun("leave --context east --broker-context broker --broker-namespace b-step")
	env.finalizeAgentNamespace("east")
	env.expectNoWrites(t, "taking an invited id", func() {
		env.mustRefuse(line+"east --clusterid north", "the id is in use", "seamark cluster remove north")
	})
	env.expectNoWrites(t, "taking a member's id", func() { env.mustRefuse(line+"east --clusterid west", "the id is in use") })
	// The invitation of this cluster is used again, as after an interruption.
	env.mustRun(line + "east --clusterid south")
	env.mustRun("leave --context east")
	env.finalizeAgentNamespace("east")
	env.mustRun(line + "east --clusterid south")
	if o := env.run("leave --context east --broker-context nowhere"); o.Code != 1 {
		t.Errorf("%+v", o)
	}
	if stored := env.objectVersions("east")["Secret seamark-system/seamark-broker"]; stored == "" {
		t.Error("a leave that failed deleted the credential")
	}
}

func TestRemove(t *testing.T) {
	env := newEnvironment(t)
	ctx, broker := t.Context(), env.clients["broker"]
	newBroker(env, "b-remove", "")
	east := env.invite("b-remove", "east", "")
	env.invite("b-remove", "west", "")
	shared, alone := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "alone"}
	env.publishService("b-remove", shared, "243.0.0.1", "east", "west")
	env.publishService("b-remove", alone, "243.0.0.2", "east")

	removed := decode[brokeradmin.RemoveMemberResult](env, "cluster remove east --context broker -n b-remove")
	want := brokeradmin.RemoveMemberResult{ClusterID: "east", Found: true, Records: 2, Slices: 2, ServicesLeft: 1, ServicesEnded: 1}
	if removed != want {
		t.Errorf("got %+v, want %+v", removed, want)
	}
	si := &mcsv1beta1.ServiceImport{}
	if err := broker.Get(ctx, types.NamespacedName{Namespace: "b-remove", Name: objects.AggregateName(shared)}, si); err != nil {
		t.Fatal(err)
	}
	if len(si.Status.Clusters) != 1 || si.Status.Clusters[0].Cluster != "west" || fmt.Sprint(si.Spec.IPs) != "[243.0.0.1]" {
		t.Errorf("the service that west still exports: %v at %v", si.Status.Clusters, si.Spec.IPs)
	}
	err := broker.Get(ctx, types.NamespacedName{Namespace: "b-remove", Name: objects.AggregateName(alone)}, si)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the service without exporters: %v", err)
	}
	leftOf := func() (left []string) {
		for key := range env.objectVersions("broker") {
			if strings.Contains(key, "b-remove") && strings.Contains(key, "east") {
				left = append(left, key)
			}
		}
		slices.Sort(left)
		return left
	}
	tombstone := []string{
		"Lease b-remove/east", "Role b-remove/member.east", "RoleBinding b-remove/member.east:own", "ServiceAccount b-remove/member.east",
	}
	if left := leftOf(); !slices.Equal(left, tombstone) {
		t.Errorf("left: %v", left)
	}
	// The credential allows nothing but to read that it was removed.
	if err := tryToken(t, east); !apierrors.IsForbidden(err) {
		t.Errorf("its credential still works: %v", err)
	}
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: "b-remove", Name: "east"}
	if err := clientOf(t, east).Get(ctx, key, lease); err != nil || objects.RemovedAt(lease) == "" {
		t.Errorf("the tombstone is not readable: %v %v", lease.Annotations, err)
	}
	if err := clientOf(t, east).Update(ctx, lease); !apierrors.IsForbidden(err) {
		t.Errorf("the tombstone can be changed: %v", err)
	}
	env.mustRefuse("broker invite east --renew --context broker -n b-remove --file -", "was removed from clusterset", "leave out --renew")
	if again := decode[brokeradmin.RemoveMemberResult](env, "cluster remove east --context broker -n b-remove"); again.Found {
		t.Errorf("a second removal found %+v", again)
	}
	// A later removal deletes the tombstone when no token can be valid any more.
	objects.MarkRemoved(lease, time.Now().Add(-31*24*time.Hour).UTC().Format(time.RFC3339))
	if err := broker.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}
	env.mustRun("cluster remove unknown --context broker -n b-remove")
	if left := leftOf(); len(left) > 0 {
		t.Errorf("left of the tombstone: %v", left)
	}
	// A removal that was interrupted after the records is completed by the next one.
	env.invite("b-remove", "east", "--force")
	env.publishService("b-remove", alone, "243.0.0.2", "east")
	if err := broker.Delete(ctx, newRecord("b-remove", "east", alone)); err != nil {
		t.Fatal(err)
	}
	removed = decode[brokeradmin.RemoveMemberResult](env, "cluster remove east --context broker -n b-remove")
	if removed.ServicesEnded != 1 || removed.Slices != 1 || removed.Records != 0 {
		t.Errorf("%+v", removed)
	}
}

func TestLeave(t *testing.T) {
	env := newEnvironment(t)
	ctx, broker, east := t.Context(), env.clients["broker"], env.clients["east"]
	newBroker(env, "b-leave", "")
	env.invite("b-leave", "west", "")
	env.createNamespace("leaving", "east", "broker")
	shared, alone := types.NamespacedName{Namespace: "leaving", Name: "web"}, types.NamespacedName{Namespace: "leaving", Name: "alone"}
	prepare := func() {
		env.t.Helper()
		env.invite("b-leave", "east", "--force")
		env.mustRun("join --no-install %s --context east", env.path("east.yaml"))
		env.publishService("b-leave", shared, "243.0.0.1", "east", "west")
		env.publishService("b-leave", alone, "243.0.0.2", "east")
		imported := &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "leaving", Name: "web", Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
			},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
		}
		users := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "users"}, Spec: imported.Spec}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "leaving", Name: "web.west.1", Labels: map[string]string{discoveryv1.LabelManagedBy: objects.ManagedBy},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		}
		// The aggregate and its slice are those of a broker in the same cluster.
		env.create("east", imported, users, slice, newAggregate("leaving", "x", shared), newSlice("leaving", "x", shared),
			&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "web"}})
	}
	prepare()
	unreachable := reachable.Unreachables{{Cluster: "west", Family: corev1.IPv4Protocol}: time.Now()}
	for _, property := range []client.Object{
		objects.RangesProperty([]v1alpha1.CIDR{"243.0.0.0/8"}), reachable.Property(unreachable),
	} {
		if err := east.Create(ctx, property); err != nil { // as the agent does
			t.Fatal(err)
		}
	}
	left := decode[brokeradmin.LeaveResult](env, "leave --context east")
	want := brokeradmin.LeaveResult{
		Member: true, ClusterID: "east", ClusterSet: "clusterset", Withdrawn: true,
		Records: 2, Slices: 2, Imports: 1, ImportedSlices: 1, Exports: 1,
	}
	if left != want {
		t.Errorf("got %+v, want %+v", left, want)
	}
	for key := range env.objectVersions("broker") {
		isExport := strings.HasPrefix(key, "ExportRecord b-leave") || strings.HasPrefix(key, "EndpointSlice b-leave")
		if isExport && strings.Contains(key, ".east") {
			t.Errorf("%s is left on the broker", key)
		}
	}
	si := &mcsv1beta1.ServiceImport{}
	if err := broker.Get(ctx, types.NamespacedName{Namespace: "b-leave", Name: objects.AggregateName(alone)}, si); !apierrors.IsNotFound(err) {
		t.Errorf("the aggregate without exporters: %v", err)
	}
	err := broker.Get(ctx, types.NamespacedName{Namespace: "b-leave", Name: objects.AggregateName(shared)}, si)
	if err != nil || len(si.Spec.IPs) != 1 {
		t.Errorf("the aggregate that west exports: %v (%v)", si.Spec.IPs, err)
	}
	here := env.objectVersions("east")
	for _, gone := range []string{
		"ServiceImport leaving/web", "EndpointSlice leaving/web.west.1", "Secret seamark-system/seamark-broker",
		"ClusterProperty /clusterset.k8s.io", "ClusterClaim /clusterset.k8s.io",
		"ClusterProperty /" + v1alpha1.PropertyClusterSetIPRanges, "ClusterProperty /" + v1alpha1.PropertyUnreachableClusters,
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
			t.Errorf("%s was deleted", kept)
		}
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := east.Get(ctx, types.NamespacedName{Namespace: "leaving", Name: "web"}, export); err != nil {
		t.Fatal(err)
	}
	ready := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
	if ready == nil || ready.Status != metav1.ConditionFalse ||
		ready.Reason != string(v1alpha1.ServiceExportReasonNotMember) || ready.Message != brokeradmin.LeftMessage {
		t.Errorf("the Ready condition of the ServiceExport is %+v", ready)
	}
	namespace := &corev1.Namespace{}
	if err := east.Get(ctx, types.NamespacedName{Name: objects.AgentNamespace}, namespace); err == nil && namespace.DeletionTimestamp == nil {
		t.Error("the namespace that join created is not deleted")
	}

	// If the broker is unreachable, everything in this cluster is deleted, and the output says what
	// the broker's admin has to do.
	env.finalizeAgentNamespace("east")
	env.mustRun("cluster remove east --context broker -n b-leave")
	prepare()
	secret := &corev1.Secret{}
	if err := east.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["server"] = []byte("https://127.0.0.1:1")
	if err := east.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	ofTheUser := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "of-the-user"}}
	env.create("east", ofTheUser)
	started := time.Now()
	o := env.mustRun("leave --context east")
	if !strings.Contains(o.Stdout, "NOT from the broker") || !strings.Contains(o.Stdout, "seamark cluster remove east") {
		t.Errorf("the output is:\n%s", o.Stdout)
	}
	if time.Since(started) > 40*time.Second {
		t.Errorf("it took %s", time.Since(started))
	}
	if here := env.objectVersions("east"); here["ServiceImport leaving/web"] != "" || here["ConfigMap seamark-system/of-the-user"] == "" {
		t.Error("imports must be deleted and objects of the user must stay")
	}
	if err := east.Get(ctx, types.NamespacedName{Name: objects.AgentNamespace}, namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("a namespace with objects of the user was deleted (%v)", err)
	}
	if err := east.Delete(ctx, ofTheUser); err != nil {
		t.Fatal(err)
	}
}
