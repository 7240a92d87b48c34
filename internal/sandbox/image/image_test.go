package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// project writes a checkout with small programs and returns a builder and the recipe of an image
// with two of them.
func project(t *testing.T) (Builder, Recipe) {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":          "module github.com/seamark-dev/seamark\n\ngo 1.26\n",
		"cmd/one/main.go": "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(7) }\n",
		"cmd/two/main.go": "package main\n\nfunc main() {}\n",
		"cmd/bad/main.go": "package main\n\nfunc main() { nothing() }\n",
		"cmd/none/readme": "no program\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Builder{Root: root, Version: "v1.2.3"}, Recipe{
		Repository: "example.com/thing", Programs: []string{"cmd/one", "cmd/two"}, Entrypoint: []string{"one"}, Command: []string{"go"},
	}
}

func build(t *testing.T, b Builder, r Recipe, arch string) v1.Image {
	t.Helper()
	image, err := b.Build(t.Context(), r, arch)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func TestImageContents(t *testing.T) {
	b, r := project(t)
	image := build(t, b, r, "arm64")
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" || config.Config.User != "65532:65532" {
		t.Errorf("image is for %s/%s and user %q", config.OS, config.Architecture, config.Config.User)
	}
	if !slices.Equal(config.Config.Entrypoint, r.Entrypoint) || !slices.Equal(config.Config.Cmd, r.Command) {
		t.Errorf("image runs %v %v", config.Config.Entrypoint, config.Config.Cmd)
	}
	want := []string{"etc", "etc/group", "etc/passwd", "tmp", "usr", "usr/local", "usr/local/bin", "usr/local/bin/one", "usr/local/bin/two"}
	if got := contents(t, image); !slices.Equal(got, want) {
		t.Errorf("image holds %v, want %v", got, want)
	}
}

// A program that was built elsewhere becomes an image as it is.
func TestPackage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := Package(Recipe{Repository: "example.com/tool", Entrypoint: []string{"tool"}}, "v1", program)
	if err != nil {
		t.Fatal(err)
	}
	image, err := content.Image()
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, image); !slices.Contains(got, "usr/local/bin/tool") || !slices.Contains(got, "etc/passwd") {
		t.Errorf("image holds %v", got)
	}
	if _, err := Package(Recipe{Repository: "example.com/tool"}, "v1", program+"-missing"); err == nil {
		t.Error("a missing program was packed")
	}
}

// contents returns the names of the files in an image, sorted.
func contents(t *testing.T, image v1.Image) (names []string) {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	for archive := tar.NewReader(flat); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.Uid != 0 || !header.ModTime.IsZero() && header.ModTime.Unix() != 0 {
			t.Errorf("%s is of user %d and time %s", header.Name, header.Uid, header.ModTime)
		}
	}
}

// TestImageIsReproducible checks that the same sources make the same image, in any folder and with
// or without a cache, and that every other input changes the key.
func TestImageIsReproducible(t *testing.T) {
	b, r := project(t)
	first := digest(t, build(t, b, r, "amd64"))
	elsewhere, _ := project(t)
	elsewhere.Cache = t.TempDir()
	for range 2 {
		if got := digest(t, build(t, elsewhere, r, "amd64")); got != first {
			t.Errorf("the same sources made %s and %s", first, got)
		}
	}
	changes := map[string]func() (Builder, Recipe, string){
		"architecture": func() (Builder, Recipe, string) { return b, r, "arm64" },
		"command":      func() (Builder, Recipe, string) { c := r; c.Command = []string{"stop"}; return b, c, "amd64" },
		"programs":     func() (Builder, Recipe, string) { c := r; c.Programs = r.Programs[:1]; return b, c, "amd64" },
		"version":      func() (Builder, Recipe, string) { c := b; c.Version = "v2"; return c, r, "amd64" },
	}
	base, err := b.Compile(t.Context(), r, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		changed, recipe, arch := change()
		content, err := changed.Compile(t.Context(), recipe, arch)
		if err != nil {
			t.Fatal(err)
		}
		if content.Key() == base.Key() {
			t.Errorf("a change of the %s does not change the key", name)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	b, r := project(t)
	r.Programs = []string{"cmd/bad"}
	if _, err := b.Build(t.Context(), r, "amd64"); err == nil || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
	if _, err := b.Build(t.Context(), r, "pdp11"); err == nil || !strings.Contains(err.Error(), "choose from amd64, arm64") {
		t.Errorf("an unknown architecture: %v", err)
	}
}

func TestDaemonsInTheCheckout(t *testing.T) {
	root := t.TempDir()
	if _, err := Daemons(root); err == nil || !strings.Contains(err.Error(), "is it a checkout") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, program := range []string{"seamark-agent", "seamark-dns"} {
		dir := filepath.Join(root, "cmd", program)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Daemons(root)
	if err != nil || !r.Holds("seamark-agent") || !r.Holds("seamark-dns") || r.Holds("seamark-proxy") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTarOfOneImage(t *testing.T) {
	b, r := project(t)
	image := build(t, b, r, "amd64")
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteTar(file, "example.com/thing:v1", image); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.com/thing:v1")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := image.ConfigName()
	if got, err := read.ConfigName(); err != nil || got != want {
		t.Errorf("read back %s, wrote %s: %v", got, want, err)
	}
	if err := WriteTar(file, "Not A Name", image); err == nil {
		t.Error("an invalid name was accepted")
	}
}

// TestLayoutOfOneImage checks that a layout is one whatever the number of architectures, and that
// equal images make equal files.
func TestLayoutOfOneImage(t *testing.T) {
	b, r := project(t)
	built, dir := build(t, b, r, "amd64"), t.TempDir()
	var files [2][]byte
	for i := range files {
		file := filepath.Join(dir, "image.tar")
		if err := WriteLayout(file, "example.com/thing:v1", built); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the same image made different files")
	}
	var names []string
	for reader := tar.NewReader(bytes.NewReader(files[0])); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if !slices.Contains(names, "oci-layout") || slices.Contains(names, "manifest.json") {
		t.Errorf("the file holds %v, which is no OCI layout", names)
	}
}

func TestTarOfSeveralArchitectures(t *testing.T) {
	b, r := project(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteTar(file, "example.com/thing:v1", build(t, b, r, "amd64"), build(t, b, r, "arm64")); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var index string
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name == "index.json" {
			text, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			index = string(text)
		}
	}
	if !regexp.MustCompile(`"io.containerd.image.name": ?"example.com/thing:v1"`).MatchString(index) {
		t.Errorf("the index does not name the image: %s", index)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*partial*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	b, r := project(t)
	amd, arm := build(t, b, r, "amd64"), build(t, b, r, "arm64")
	single, err := Push(t.Context(), host+"/thing:one", amd)
	if err != nil || single != digest(t, amd) {
		t.Errorf("pushed %s, want %s: %v", single, digest(t, amd), err)
	}
	both, err := Push(t.Context(), host+"/thing:both", amd, arm)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(host + "/thing@" + both)
	if err != nil {
		t.Fatal(err)
	}
	for arch, want := range map[string]v1.Image{"amd64": amd, "arm64": arm} {
		got, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if digest(t, got) != digest(t, want) {
			t.Errorf("%s pulls another image", arch)
		}
	}
	server.Close()
	if _, err := Push(t.Context(), host+"/thing:gone", amd); err == nil || !strings.Contains(err.Error(), "thing:gone") {
		t.Errorf("a registry that does not run: %v", err)
	}
}
