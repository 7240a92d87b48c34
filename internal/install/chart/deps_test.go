package chart_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Helm is for the command line. In a daemon it would be tens of megabytes of code that has no business in a cluster.
func TestDaemonsAreFreeOfHelm(t *testing.T) {
	for _, daemon := range []string{"seamark-agent", "seamark-dns", "seamark-proxy"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/seamark-dev/seamark/cmd/"+daemon)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if !strings.Contains(string(out), "github.com/seamark-dev/seamark/") {
			t.Fatalf("go list names nothing of ours for %s", daemon)
		}
		for pkg := range strings.Lines(string(out)) {
			if pkg = strings.TrimSpace(pkg); strings.HasPrefix(pkg, "helm.sh/") || strings.HasSuffix(pkg, "seamark/internal/install/chart") {
				t.Errorf("%s depends on %s", daemon, pkg)
			}
		}
	}
}
