package status

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run with -update if the new text is correct (-want +got):\n%s", diff)
	}
}

var noon = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)

func leaseOf(id string, age time.Duration) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](20), RenewTime: ptr.To(metav1.NewMicroTime(noon.Add(-age)))},
	}
}

func recordOf(service, cluster string, age time.Duration, port int32) v1alpha1.ExportRecord {
	key := types.NamespacedName{Namespace: "shop", Name: service}
	return v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(key, cluster), Labels: objects.Labels(key, cluster)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: service, ServiceNamespace: "shop", ClusterID: v1alpha1.ClusterID(cluster),
			ExportedAt: metav1.NewTime(noon.Add(-age)), Type: mcsv1beta1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
		},
	}
}

func sliceOf(service, cluster string, ready bool) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: objects.Labels(types.NamespacedName{Namespace: "shop", Name: service}, cluster)},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}},
	}
}

func aggregateOf(service string, ips ...string) mcsv1beta1.ServiceImport {
	return mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Labels: objects.Labels(types.NamespacedName{Namespace: "shop", Name: service}, "")},
		Spec:       mcsv1beta1.ServiceImportSpec{IPs: ips},
	}
}

// troubled returns a clusterset with a silent member, one that was only invited, a conflict, and
// stale and failing services.
func troubled() Input {
	return Input{
		Now: noon, BrokerNow: noon, ClusterSet: "clusterset",
		Broker: Broker{Server: "https://broker:6443", Via: "cluster east, with its own credential"},
		Members: []v1alpha1.Cluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.ClusterSpec{ClusterSetIPBlocks: []v1alpha1.CIDR{"243.0.0.0/16"}},
				Status: v1alpha1.ClusterStatus{AgentVersion: "v1.0.0", DataPlane: v1alpha1.DataPlaneService}},
			{ObjectMeta: metav1.ObjectMeta{Name: "north"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.ClusterSpec{AllowedNamespaces: []string{"shop"}},
				Status: v1alpha1.ClusterStatus{AgentVersion: "v1.0.0", DataPlane: v1alpha1.DataPlaneNFTables}},
		},
		Leases: []coordinationv1.Lease{
			leaseOf("east", 3*time.Second), leaseOf("west", 10*time.Minute), {ObjectMeta: metav1.ObjectMeta{Name: "north"}},
		},
		Records: []v1alpha1.ExportRecord{
			recordOf("web", "east", time.Hour, 80), recordOf("web", "west", time.Minute, 8080),
			recordOf("only", "west", time.Hour, 80), recordOf("dead", "east", time.Hour, 80),
		},
		Slices: []discoveryv1.EndpointSlice{
			sliceOf("web", "east", true), sliceOf("web", "west", true), sliceOf("only", "west", true), sliceOf("dead", "east", false),
		},
		Aggregates: []mcsv1beta1.ServiceImport{aggregateOf("web", "243.0.0.1"), aggregateOf("only", "243.1.0.1"), aggregateOf("dead")},
		Clusters: []Cluster{{ID: "east", Context: "east-admin", Member: true, Exports: []mcsv1beta1.ServiceExport{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ghost"}, Status: mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{
				{Type: "Valid", Status: metav1.ConditionFalse,
					Message: "there is no Service ghost in namespace shop: create it, and it is exported"}}}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unseen"}},
		}, Imports: []mcsv1beta1.ServiceImport{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
				Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}},
			Status: mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Message: "waiting for its Service mcs-web-0123456789"}}},
		}}}},
	}
}

// reached returns what the agent of east says about other clusters: one entry for each reason.
func reached() []objects.Reachability {
	of := func(to string, state objects.ReachState, reason objects.ReachReason, latency float64, answering int) objects.Reachability {
		return objects.Reachability{
			Cluster: to, Family: corev1.IPv4Protocol, State: state, Reason: reason, Since: noon.Add(-time.Hour),
			Latency: latency, Beacons: 3, Answering: answering,
		}
	}
	none := of("south", objects.ReachabilityUnknown, objects.ReachNoBeacons, 0, 0)
	none.Beacons = 0
	return []objects.Reachability{
		of("west", objects.Reachable, objects.ReachBeaconsAnswer, 0.0123, 3), // its lease expired
		of("north", objects.Reachable, objects.ReachBeaconsAnswer, 0.0004, 2),
		of("up", objects.Reachable, objects.ReachEndpointsAnswer, 0, 0),
		of("down", objects.Unreachable, objects.ReachNoAnswer, 0, 0),
		of("centre", objects.Unreachable, objects.ReachNotSteady, 0.5, 3),
		none,
		of("far", objects.ReachabilityUnknown, objects.ReachNeverAnswered, 0, 0),
		of("odd", objects.ReachabilityUnknown, objects.ReachRefused, 0, 0),
	}
}

func TestStatusText(t *testing.T) {
	var text bytes.Buffer
	in := troubled()
	Write(&text, Assess(in), in.Now, false, explain.Plain)
	text.WriteString("\n=== who reaches whom\n")
	in.Clusters[0].Reachability = reached()
	Write(&text, Assess(in), in.Now, false, explain.Plain)
	in.Clusters[0].Reachability = nil
	text.WriteString("\n=== wide\n")
	Write(&text, Assess(in), in.Now, true, explain.Plain)
	text.WriteString("\n=== the broker is unreachable\n")
	in = Input{Now: noon, Broker: Broker{Problem: "no answer in time"}, Clusters: in.Clusters}
	Write(&text, Assess(in), in.Now, false, explain.Plain)
	text.WriteString("\n=== nothing yet\n")
	in = Input{Now: noon, ClusterSet: "clusterset", Broker: Broker{Server: "https://broker:6443", Via: "context broker"}}
	Write(&text, Assess(in), in.Now, false, explain.Plain)
	golden(t, "status.txt", text.String())
}

// A member whose clock is an hour behind is alive when the broker took its heartbeat a moment ago.
func TestStatusTrustsTheBrokersClock(t *testing.T) {
	in := troubled()
	in.BrokerNow = noon.Add(time.Hour)
	for i := range in.Leases {
		in.Leases[i].ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(in.BrokerNow.Add(-2 * time.Second)))}}
	}
	for _, c := range Assess(in).Clusters {
		if want := map[string]MemberState{"east": Alive, "west": Alive, "north": Invited}[c.ID]; c.State != want {
			t.Errorf("%s is %s, want %s", c.ID, c.State, want)
		}
		if c.LastHeartbeat != nil && noon.Sub(*c.LastHeartbeat) != 2*time.Second {
			t.Errorf("%s: %s", c.ID, c.LastHeartbeat)
		}
	}
}
