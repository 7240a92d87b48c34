package kubeparts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyChangesWithEveryInput(t *testing.T) {
	keyOf := func(change func(dir string)) string {
		p := tinyPart(t)
		change(p.dir)
		_, key, err := p.identify()
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	replace := func(file, from, to string) func(string) {
		return func(dir string) {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), from, to, 1)
			if changed == string(text) {
				t.Fatalf("%s does not contain %q", file, from)
			}
			write(t, filepath.Join(dir, file), changed)
		}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(string){
		"as it is":               func(string) {},
		"another version":        replace("go.mod", "v1.2.3", "v1.2.4"),
		"a line in go.mod":       replace("go.mod", "// note", "// other note"),
		"go.sum":                 replace("go.sum", "h1:", "h2:"),
		"a Go file":              replace("main.go", "hello", "goodbye"),
		"one more Go file":       func(dir string) { write(t, filepath.Join(dir, "more.go"), "package main\n") },
		"a Go file of a command": func(dir string) { write(t, filepath.Join(dir, "more", "more.go"), "package main\n") },
		"the same text in a file of another name": func(dir string) {
			if err := os.Rename(filepath.Join(dir, "main.go"), filepath.Join(dir, "other.go")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		key := keyOf(change)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the same key %s", name, other, key)
		}
		seen[key] = name
	}
	if again := keyOf(func(string) {}); seen[again] != "as it is" {
		t.Errorf("the same input in another folder has another key: %s", again)
	}
}

func TestKeyIgnoresOtherFiles(t *testing.T) {
	p := tinyPart(t)
	_, before, err := p.identify()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.dir, "README.md"), "words\n")
	if _, after, err := p.identify(); after != before || err != nil {
		t.Errorf("a text file changed the key from %s to %s, %v", before, after, err)
	}
}

func TestKeyIsReadable(t *testing.T) {
	_, key, err := tinyPart(t).identify()
	if want := "v1.2.3-" + platform() + "-"; err != nil || !strings.HasPrefix(key, want) || len(key) != len(want)+12 {
		t.Errorf("got %s, %v, want %s and 12 digits", key, err, want)
	}
}

func TestAPartWithoutItsModuleIsRefused(t *testing.T) {
	p := tinyPart(t)
	p.versionOf = "example.com/absent"
	if _, _, err := p.identify(); err == nil || !strings.Contains(err.Error(), "does not require example.com/absent") {
		t.Errorf("got %v", err)
	}
}

func TestRequiredVersion(t *testing.T) {
	const gomod = `module example.com/m

require example.com/single v0.1.0

require (
	example.com/block v1.36.3
	example.com/indirect v2.0.0 // indirect
)

replace example.com/replaced => example.com/block v9.9.9
`
	for module, want := range map[string]string{
		"example.com/single": "v0.1.0", "example.com/block": "v1.36.3", "example.com/indirect": "v2.0.0",
		"example.com/replaced": "", "example.com/absent": "",
	} {
		if got := requiredVersion([]byte(gomod), module); got != want {
			t.Errorf("%s: got %q, want %q", module, got, want)
		}
	}
}

func TestRoot(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	nested := filepath.Join(root, "build", "kube") // has a go.mod of its own
	if got, err := rootAbove(nested); got != root || err != nil {
		t.Errorf("from %s: got %s, %v, want %s", nested, got, err, root)
	}
	if _, err := rootAbove(t.TempDir()); err == nil || !strings.Contains(err.Error(), "clone the repository") {
		t.Errorf("outside the repository: got %v", err)
	}
}

// TestTheNestedModulesAreAsDescribed checks that the steps build packages that the binary links,
// and that the go.mod files have the versions and tools.
func TestTheNestedModulesAreAsDescribed(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []part{kubePart(root), nodePart(root)} {
		if _, _, err := p.identify(); err != nil {
			t.Error(err)
		}
	}
	main, err := os.ReadFile(filepath.Join(root, "build", "kube", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range kubeSteps {
		if !strings.Contains(string(main), `"`+s.pkg+`"`) {
			t.Errorf("build/kube/main.go does not import %s", s.pkg)
		}
	}
	steps, err := planNode(t.Context(), nodePart(root), "", "out")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range steps {
		names = append(names, s.label)
	}
	want := "containerd containerd-shim-runc-v2 ctr host-local bridge loopback portmap"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("node parts: got %s, want %s", got, want)
	}
}

func TestVersionFlags(t *testing.T) {
	got := strings.Join(versionFlags("v1.36.3"), " ")
	for _, want := range []string{
		"-s -w", "k8s.io/component-base/version.gitVersion=v1.36.3", "k8s.io/component-base/version.gitMajor=1",
		"k8s.io/client-go/pkg/version.gitMinor=36",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}
