package chart_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Only the command line uses Helm. In a daemon it would be tens of megabytes of unused code.
func TestDaemonsAreFreeOfHelm(t *testing.T) {
	for _, daemon := range []string{"seamark-agent", "seamark-dns", "seamark-proxy"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/seamark-dev/seamark/cmd/"+daemon)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if !strings.Contains(string(out), "github.com/seamark-dev/seamark/") {
			t.Fatalf("go list names no package of Seamark for %s", daemon)
		}
		for pkg := range strings.Lines(string(out)) {
			if pkg = strings.TrimSpace(pkg); strings.HasPrefix(pkg, "helm.sh/") || strings.HasSuffix(pkg, "seamark/internal/install/chart") {
				t.Errorf("%s depends on %s", daemon, pkg)
			}
		}
	}
}
