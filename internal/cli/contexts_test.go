package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A shell offers the contexts that were not named yet.
func TestCompleteContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncontexts: [{name: east, context: {}}, {name: west, context: {}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{"": "east west", "east,": "east,west", "west,e": "west,east"} {
		var out, errOut bytes.Buffer
		args := []string{"__complete", "status", "--kubeconfig", path, "--contexts", typed}
		if code := Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code != 0 {
			t.Fatalf("%q: exit %d: %s", typed, code, errOut.String())
		}
		offered, _, _ := strings.Cut(out.String(), ":")
		if got := strings.Join(strings.Fields(offered), " "); got != want {
			t.Errorf("%q: offered %q, want %q", typed, got, want)
		}
	}
}
