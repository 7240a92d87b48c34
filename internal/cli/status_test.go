package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

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
		t.Errorf("run with -update if the new text is right (-want +got):\n%s", diff)
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
			ServiceName: service, ServiceNamespace: "shop", ClusterID: v1alpha1.ClusterID(cluster), ExportedAt: metav1.NewTime(noon.Add(-age)), Type: mcsv1beta1.ClusterSetIP,
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

// troubled is a clusterset with one of everything: a silent member, one that was only invited, a conflict, stale and failing services.
func troubled() statusInput {
	return statusInput{
		now: noon, brokerNow: noon, set: "clusterset", broker: brokerStatus{Server: "https://broker:6443", Via: "cluster east, with its own credential"},
		members: []v1alpha1.Cluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.ClusterSpec{ClusterSetIPBlocks: []v1alpha1.CIDR{"243.0.0.0/16"}},
				Status: v1alpha1.ClusterStatus{AgentVersion: "v1.0.0", DataPlane: v1alpha1.DataPlaneService}},
			{ObjectMeta: metav1.ObjectMeta{Name: "north"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.ClusterSpec{AllowedNamespaces: []string{"shop"}},
				Status: v1alpha1.ClusterStatus{AgentVersion: "v1.0.0", DataPlane: v1alpha1.DataPlaneNFTables}},
		},
		leases:     []coordinationv1.Lease{leaseOf("east", 3*time.Second), leaseOf("west", 10*time.Minute), {ObjectMeta: metav1.ObjectMeta{Name: "north"}}},
		records:    []v1alpha1.ExportRecord{recordOf("web", "east", time.Hour, 80), recordOf("web", "west", time.Minute, 8080), recordOf("only", "west", time.Hour, 80), recordOf("dead", "east", time.Hour, 80)},
		slices:     []discoveryv1.EndpointSlice{sliceOf("web", "east", true), sliceOf("web", "west", true), sliceOf("only", "west", true), sliceOf("dead", "east", false)},
		aggregates: []mcsv1beta1.ServiceImport{aggregateOf("web", "243.0.0.1"), aggregateOf("only", "243.1.0.1"), aggregateOf("dead")},
		sites: []siteObjects{{id: "east", context: "east-admin", member: true, exports: []mcsv1beta1.ServiceExport{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ghost"}, Status: mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{
				{Type: "Valid", Status: metav1.ConditionFalse, Message: "there is no Service ghost in namespace shop: create it, and it is exported"}}}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unseen"}},
		}, imports: []mcsv1beta1.ServiceImport{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}},
			Status: mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Message: "waiting for its Service mcs-web-0123456789"}}},
		}}}},
	}
}

func TestStatusText(t *testing.T) {
	var text bytes.Buffer
	in := troubled()
	tellStatus(&text, assess(in), in.now, false, explain.Plain)
	text.WriteString("\n=== wide\n")
	tellStatus(&text, assess(in), in.now, true, explain.Plain)
	text.WriteString("\n=== the broker is away\n")
	in = statusInput{now: noon, broker: brokerStatus{Problem: "no answer in time"}, sites: in.sites}
	tellStatus(&text, assess(in), in.now, false, explain.Plain)
	text.WriteString("\n=== nothing yet\n")
	tellStatus(&text, assess(statusInput{now: noon, set: "clusterset", broker: brokerStatus{Server: "https://broker:6443", Via: "context hub"}}), noon, false, explain.Plain)
	golden(t, "status.txt", text.String())
}

// A member whose clock is an hour behind is alive when the broker took its heartbeat a moment ago.
func TestStatusTrustsTheBrokersClock(t *testing.T) {
	in := troubled()
	in.brokerNow = noon.Add(time.Hour)
	for i := range in.leases {
		in.leases[i].ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(in.brokerNow.Add(-2 * time.Second)))}}
	}
	for _, c := range assess(in).Clusters {
		if want := map[string]string{"east": lifeAlive, "west": lifeAlive, "north": lifeInvited}[c.ID]; c.State != want {
			t.Errorf("%s is %s, want %s", c.ID, c.State, want)
		}
		if c.LastHeartbeat != nil && noon.Sub(*c.LastHeartbeat) != 2*time.Second {
			t.Errorf("%s: %s", c.ID, c.LastHeartbeat)
		}
	}
}

func TestColours(t *testing.T) {
	if got := colours(explain.Fail, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
	s := &session{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}}}
	if got := s.paint()(explain.Fail, "x"); got != "x" {
		t.Errorf("in a pipe: %q", got)
	}
}

func TestServerClock(t *testing.T) {
	c := &serverClock{}
	if _, known := c.read(); known || c.now(noon) != noon {
		t.Error("nothing was heard yet")
	}
	c.observe("nonsense", noon, noon)
	slow, fast := noon.Add(time.Hour), noon.Add(2*time.Hour)
	c.observe(slow.Format(http.TimeFormat), noon, noon.Add(time.Second))
	c.observe(fast.Format(http.TimeFormat), noon, noon.Add(time.Millisecond))
	c.observe(slow.Format(http.TimeFormat), noon, noon.Add(time.Second))
	if ahead, known := c.read(); !known || (ahead-2*time.Hour).Abs() > time.Second {
		t.Errorf("%s: the answer that took the least time counts", ahead)
	}
	if got := c.now(noon); got.Sub(noon) < time.Hour {
		t.Errorf("%s", got)
	}
}

func TestWatchEnds(t *testing.T) {
	var out bytes.Buffer
	s := &session{IOStreams: genericiooptions.IOStreams{Out: &out}}
	ctx, cancel := context.WithCancel(context.Background())
	looks := 0
	err := watchFlags{watch: true, interval: time.Millisecond}.run(ctx, s, func(_ context.Context, w io.Writer) error {
		looks++
		if looks == 4 {
			cancel()
		}
		_, err := io.WriteString(w, map[bool]string{true: "first\n", false: "second\n"}[looks < 3])
		return err
	})
	if err != nil || out.String() != "first\n\nsecond\n\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	failure := errors.New("broken")
	if err := (watchFlags{watch: true, interval: time.Millisecond}).run(t.Context(), s, func(context.Context, io.Writer) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}

func TestLook(t *testing.T) {
	for text, want := range map[string]look{"json": {format: asJSON}, "yaml": {format: asYAML}, "wide": {wide: true}} {
		var l look
		if err := l.Set(text); err != nil || l != want || l.String() != text {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
	}
	var l look
	if err := l.Set("table"); err == nil {
		t.Error("there is no such format")
	}
}

// As a plugin, the program is called what the user typed.
func TestNameAfter(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/bin/kubectl-mcs": "kubectl mcs sub", "kubectl-mcs.exe": "kubectl mcs sub", "seamark": "seamark sub", "kubectl-": "seamark sub", "kubectl-multi_cluster": "kubectl multi-cluster sub",
	} {
		root, sub := &cobra.Command{Use: "seamark"}, &cobra.Command{Use: "sub", Example: "  seamark sub x", Run: func(*cobra.Command, []string) {}}
		root.AddCommand(sub)
		nameAfter(root, program)
		if got := sub.CommandPath(); got != want || sub.Example != "  "+want+" x" {
			t.Errorf("%s: %q, %q", program, got, sub.Example)
		}
	}
}

func TestShorten(t *testing.T) {
	if got := shorten("one two three", 9); got != "one two…" {
		t.Errorf("%q", got)
	}
	if got := shorten(strings.Repeat("x", 20), 9); got != strings.Repeat("x", 9)+"…" {
		t.Errorf("%q", got)
	}
	if got := shorten("a\nb", 9); got != "a b" {
		t.Errorf("%q", got)
	}
}

// A shell offers the contexts that were not named yet.
func TestCompleteContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncontexts: [{name: east, context: {}}, {name: west, context: {}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{"": "east west", "east,": "east,west", "west,e": "west,east"} {
		var out, errOut bytes.Buffer
		if code := Run(t.Context(), []string{"__complete", "status", "--kubeconfig", path, "--contexts", typed}, strings.NewReader(""), &out, &errOut); code != 0 {
			t.Fatalf("%q: exit %d: %s", typed, code, errOut.String())
		}
		offered, _, _ := strings.Cut(out.String(), ":")
		if got := strings.Join(strings.Fields(offered), " "); got != want {
			t.Errorf("%q: offered %q, want %q", typed, got, want)
		}
	}
}
