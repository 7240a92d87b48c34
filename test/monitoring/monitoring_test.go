// Package monitoring_test checks that alerts and dashboard use only metrics that exist. promtool.sh
// tests the alerts themselves.
package monitoring_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// definedMetrics returns the metrics that the code defines, with the names of their series.
func definedMetrics(t *testing.T, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	whole := regexp.MustCompile(`"(seamark_[a-z_]+)"`)
	namespaced := regexp.MustCompile(`Namespace: namespace, Name: "([a-z_]+)"`)
	namespace := regexp.MustCompile(`namespace\s*=\s*"(seamark_[a-z]+)"`)
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var found []string
		for _, m := range whole.FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
		if n := namespace.FindStringSubmatch(string(text)); n != nil {
			for _, m := range namespaced.FindAllStringSubmatch(string(text), -1) {
				found = append(found, n[1]+"_"+m[1])
			}
		}
		for _, name := range found {
			out[name], out[name+"_bucket"], out[name+"_count"], out[name+"_sum"] = true, true, true, true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAlertsAndDashboardUseExistingMetrics(t *testing.T) {
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	known := definedMetrics(t, root)
	metric := regexp.MustCompile(`seamark_[a-z_]+`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		names := metric.FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s uses only %d metrics", file, len(names))
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s uses %s, which no program exports", file, name)
			}
		}
	}
}

func TestDashboardPanels(t *testing.T) {
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID                       int
			Title, Type, Description string
			GridPos                  struct{ H, W, X, Y int }
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	occupied := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q has no query or no description", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := occupied[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				occupied[[2]int{x, y}] = p.Title
			}
		}
	}
}
