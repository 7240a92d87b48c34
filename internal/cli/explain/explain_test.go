package explain

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The text of a report, for each thing that can be wrong: testdata/NAME.in.yaml is what was read
// from the clusters, NAME.txt the text. The comment of the input begins with the first finding's
// code.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(inputs) < 12 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	for _, path := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".in.yaml"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var in Input
			if err := yaml.UnmarshalStrict(text, &in); err != nil {
				t.Fatal(err)
			}
			report := Explain(in)
			var got bytes.Buffer
			Write(&got, report, in.Now.Time, Plain)
			golden := strings.TrimSuffix(path, ".in.yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("run with -update if the new text is right (-want +got):\n%s", diff)
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), ":")
			if first != firstCode(report) {
				t.Errorf("the first finding is %q, want %q", firstCode(report), first)
			}
			if _, err := json.Marshal(report); err != nil {
				t.Error(err)
			}
		})
	}
}

func firstCode(r Report) string {
	if len(r.Findings) == 0 {
		return "ok"
	}
	return r.Findings[0].Code
}

// Codes are stable names: unique, and each problem complete.
func TestProblems(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Problems {
		if p.Code == "" || p.Title == "" || p.Severity == "" || p.Hop == "" || seen[p.Code] {
			t.Errorf("%+v", p)
		}
		seen[p.Code] = true
	}
}

// An exporter may publish endpoints of a family that the service does not have. No cluster imports
// those.
func TestEndpointsOfAnotherFamilyAreNotMissing(t *testing.T) {
	in := readInput(t, "all-well")
	for i := range in.Clusters {
		in.Clusters[i].Families = []corev1.IPFamily{"IPv4", "IPv6"}
	}
	six := in.Broker.Slices[0].DeepCopy()
	six.Name, six.AddressType = six.Name+"6", "IPv6"
	in.Broker.Slices = append(in.Broker.Slices, *six)
	if found := Explain(in).Findings; len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

// A silent cluster uses its own endpoints: they are not kept for lack of others.
func TestSilentClusterDoesNotKeepItsOwnEndpoints(t *testing.T) {
	in := readInput(t, "port-conflict")
	for i := range in.Broker.Leases {
		if l := &in.Broker.Leases[i]; l.Name == "west" {
			long := metav1.NewMicroTime(in.Now.Add(-time.Hour))
			l.Spec.RenewTime, l.ManagedFields = &long, nil
		}
	}
	found := 0
	for _, f := range Explain(in).Findings {
		if f.Code == "agent-silent" {
			found++
		}
		if f.Cluster == "west" && (f.Code == "stale-endpoints-kept" || f.Code == "stale-endpoints-dropped") {
			t.Errorf("west, which is silent, says of itself: %+v", f)
		}
	}
	if found != 1 {
		t.Errorf("%d findings that west is silent", found)
	}
}

// What an importer leaves out because it does not reach the exporter is not behind, and a cluster
// that it does not reach while it uses all its endpoints is the only one that serves.
func TestEndpointsOfAnUnreachableCluster(t *testing.T) {
	for left, want := range map[bool]string{true: "ok", false: "stale-endpoints-dropped"} {
		in := readInput(t, "all-well")
		for i := range in.Clusters {
			if c := &in.Clusters[i]; c.ID == "west" {
				c.Unreachable = []string{"east"}
				if !left {
					c.Imported = nil
				}
			}
		}
		report := Explain(in)
		var codes []string
		for _, f := range report.Findings {
			codes = append(codes, f.Code)
		}
		if firstCode(report) != want || slices.Contains(codes, "endpoints-behind") {
			t.Errorf("all endpoints are imported: %t; found %v, want %s", left, codes, want)
		}
	}
}
