package proxy_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What decides is pure: it can be reasoned about, and tested, without a cluster and without a kernel.
func TestPureParts(t *testing.T) {
	for pkg, forbidden := range map[string][]string{
		"model":   {"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "github.com/google/nftables", "github.com/vishvananda"},
		"ruleset": {"k8s.io", "sigs.k8s.io", "google.golang.org", "github.com/google/nftables", "github.com/vishvananda", "os/exec"},
		"kernel":  {"k8s.io", "sigs.k8s.io"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Deps "\n"}}`, "github.com/seamark-dev/seamark/internal/proxy/"+pkg).Output()
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
