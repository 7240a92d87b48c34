package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
)

func TestPrintMembers(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(d time.Duration) *time.Time { t := now.Add(-d); return &t }
	var out bytes.Buffer
	printMembers(&out, []brokeradmin.Member{
		{ClusterID: "east", Blocks: []v1alpha1.CIDR{"243.0.0.0/16", "fd00:243::/112"},
			AgentVersion: "v0.1.0", DataPlane: "service", LastHeartbeat: at(3 * time.Second), Exports: 12},
		{ClusterID: "west", AllowedNamespaces: []string{"a", "b", "c", "d", "e"},
			AgentVersion: "v0.1.0", DataPlane: "none", LastHeartbeat: at(49 * time.Hour)},
		{ClusterID: "ahead", Blocks: []v1alpha1.CIDR{"243.2.0.0/16"}, LastHeartbeat: at(-time.Hour)},
		{ClusterID: "new", Blocks: []v1alpha1.CIDR{"243.3.0.0/16"}},
	}, now)
	want := strings.TrimPrefix(`
ID      BLOCKS                         NAMESPACES    AGENT    DATA PLANE   HEARTBEAT   EXPORTS
east    243.0.0.0/16, fd00:243::/112   (default)     v0.1.0   service      3s ago      12
west    -                              a, b, c, +2   v0.1.0   none         2d1h ago    0
ahead   243.2.0.0/16                   (default)     -        -            0s ago      0
new     243.3.0.0/16                   (default)     -        -            never       0
`, "\n")
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestLeftWithoutTheBroker(t *testing.T) {
	var out bytes.Buffer
	printLeft(&out, left{
		LeaveResult: brokeradmin.LeaveResult{Member: true, ClusterID: "east", ClusterSet: "prod",
			Problem: "the broker at https://broker cannot be asked from here", Imports: 1, ImportedSlices: 2, Exports: 1},
		AdminCommand: "seamark cluster remove east",
	})
	want := strings.TrimPrefix(`
Cluster east left clusterset prod.
  withdrawn      NOT from the broker: the broker at https://broker cannot be asked from here
  deleted here   1 import, 2 slices
  kept here      1 ServiceExport (idle), the cluster's id, CRDs
Other clusters still see its services. Next: stop its seamark-agent, if it still runs; then, for the broker's admin:
seamark cluster remove east
`, "\n")
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestWarnLoopback(t *testing.T) {
	for server, warned := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://localhost": true,
		"https://10.0.0.1:6443": false, "https://broker.example": false, "https://localhost.example": false,
	} {
		var errOut bytes.Buffer
		s := &session{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}
		s.warnLoopback(server)
		if got := strings.Contains(errOut.String(), "warning"); got != warned {
			t.Errorf("%s: warned %t, want %t", server, got, warned)
		}
	}
}

func TestWideFormat(t *testing.T) {
	for text, want := range map[string]wideFormat{"json": {format: asJSON}, "yaml": {format: asYAML}, "wide": {wide: true}} {
		var f wideFormat
		if err := f.Set(text); err != nil || f != want || f.String() != text {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	var f wideFormat
	if err := f.Set("table"); err == nil {
		t.Error("there is no such format")
	}
}

func TestExportedNameHasTheZoneOfTheCluster(t *testing.T) {
	var out bytes.Buffer
	printExported(&out, &exported{Namespace: "shop", Name: "web", Ready: true, zone: "example.internal"})
	if want := "Service shop/web is published to the clusterset as web.shop.svc.example.internal.\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// The wide listing shows every condition of an import, not only Ready.
func TestWideImportsShowAllConditions(t *testing.T) {
	now := time.Now()
	var out bytes.Buffer
	printImports(&out, []listedImport{{
		Cluster: "north", Namespace: "shop", Name: "web", Ready: "True", Created: now,
		Conditions: []metav1.Condition{{Message: "the service is imported"}, {Message: "cluster west has not been heard from"}},
	}}, now, true)
	if want := "the service is imported; cluster west has not been heard from"; !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant %q in it", out.String(), want)
	}
}

// Waiting helps only while the reason can pass by itself.
func TestExportStopsWaitingOnFinalReasons(t *testing.T) {
	for reason, final := range map[mcsv1beta1.ServiceExportConditionReason]bool{
		v1alpha1.ServiceExportReasonRefusedByBroker: true, v1alpha1.ServiceExportReasonClusterIDTaken: true,
		v1alpha1.ServiceExportReasonWaitingForBroker: false, v1alpha1.ServiceExportReasonNoClusterSetIPLeft: false,
		mcsv1beta1.ServiceExportReasonFailed: true, mcsv1beta1.ServiceExportReasonPending: false,
	} {
		r := &exported{Conditions: []metav1.Condition{{
			Type: string(mcsv1beta1.ServiceExportConditionReady), Status: metav1.ConditionFalse, Reason: string(reason), Message: "why",
		}}}
		if got := r.refusal() != nil; got != final {
			t.Errorf("%s: stops waiting: %v, want %v", reason, got, final)
		}
	}
}
