package proxy_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The packages that decide depend on neither an API client nor the kernel, so that they can be
// tested without a cluster.
func TestPureParts(t *testing.T) {
	for pkg, forbidden := range map[string][]string{
		"model": {"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "github.com/google/nftables",
			"github.com/vishvananda"},
		"ruleset": {"k8s.io", "sigs.k8s.io", "google.golang.org", "github.com/google/nftables", "github.com/vishvananda", "os/exec"},
		"kernel":  {"k8s.io", "sigs.k8s.io"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Deps "\n"}}`,
			"github.com/seamark-dev/seamark/internal/proxy/"+pkg).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		deps := strings.Fields(string(out))
		if len(deps) == 0 {
			t.Fatal("go list names no package")
		}
		for _, dep := range deps {
			for _, f := range forbidden {
				if dep == f || strings.HasPrefix(dep, f+"/") {
					t.Errorf("%s depends on %s", pkg, dep)
				}
			}
		}
	}
}
