package merge_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// merge is pure: it must not import a package for I/O, time, logs or randomness.
func TestImports(t *testing.T) {
	// The complete list of what the package itself imports.
	allowed := []string{
		"bytes", "cmp", "encoding/json", "maps", "math", "net/netip", "slices", "strconv", "strings", "unicode/utf8",
		"github.com/seamark-dev/seamark/api/v1alpha1",
		"k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/api/validate/content", "k8s.io/apimachinery/pkg/apis/meta/v1",
		"sigs.k8s.io/mcs-api/pkg/apis/v1beta1",
	}
	for _, pkg := range goList(t, `{{join .Imports "\n"}}`) {
		if !slices.Contains(allowed, pkg) {
			t.Errorf("merge imports %s", pkg)
		}
	}
	// The API types depend on klog. They must not depend on clients.
	for _, pkg := range goList(t, `{{join .Deps "\n"}}`) {
		for _, forbidden := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "google.golang.org/grpc"} {
			if pkg == forbidden || strings.HasPrefix(pkg, forbidden+"/") {
				t.Errorf("merge depends on %s", pkg)
			}
		}
	}
}

func goList(t *testing.T, format string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", format, "github.com/seamark-dev/seamark/internal/merge")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	list := strings.Fields(string(out))
	if len(list) == 0 {
		t.Fatal("go list names no package")
	}
	return list
}
