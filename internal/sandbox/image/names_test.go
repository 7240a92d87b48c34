package image

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeArchive writes a tar with small files and returns its path.
func writeArchive(t *testing.T, compress bool, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "images.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var to io.WriteCloser = file
	if compress {
		to = gzip.NewWriter(file)
		defer file.Close()
	}
	archive := tar.NewWriter(to)
	for name, text := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []io.Closer{archive, to} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func index(annotations ...string) string {
	var entries []string
	for _, a := range annotations {
		entries = append(entries, `{"digest":"sha256:`+strings.Repeat("0", 64)+`","annotations":{`+a+`}}`)
	}
	return `{"schemaVersion":2,"manifests":[` + strings.Join(entries, ",") + `]}`
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		title    string
		compress bool
		files    map[string]string
		want     []Name
	}{
		{"docker save, old", false, map[string]string{"manifest.json": `[{"RepoTags":["alpine:3","example.com:5000/a/b:v1"]}]`},
			[]Name{{"docker.io/library/alpine:3", "docker.io/library/alpine:3"}, {"example.com:5000/a/b:v1", "example.com:5000/a/b:v1"}}},
		{"docker save, new", false, map[string]string{
			"manifest.json": `[{"RepoTags":["someone/thing:1"]}]`,
			"index.json":    index(`"io.containerd.image.name":"docker.io/someone/thing:1","org.opencontainers.image.ref.name":"1"`),
		}, []Name{{"docker.io/someone/thing:1", "docker.io/someone/thing:1"}}},
		{"skopeo, OCI", false, map[string]string{"./index.json": index(`"org.opencontainers.image.ref.name":"someone/thing:1"`)},
			[]Name{{"someone/thing:1", "docker.io/someone/thing:1"}}},
		{"a tag alone beside a name", true, map[string]string{
			"index.json": index(`"org.opencontainers.image.ref.name":"1"`, `"io.containerd.image.name":"index.docker.io/someone/thing:1"`),
		}, []Name{{"index.docker.io/someone/thing:1", "docker.io/someone/thing:1"}}},
	} {
		t.Run(c.title, func(t *testing.T) {
			names, err := Names(writeArchive(t, c.compress, c.files))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names, c.want) {
				t.Errorf("got %v, want %v", names, c.want)
			}
		})
	}
}

func TestArchivesWithoutUsableImages(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("garbage", 200)), 0o644); err != nil {
		t.Fatal(err)
	}
	halfGzip := filepath.Join(t.TempDir(), "half.gz")
	if err := os.WriteFile(halfGzip, []byte{0x1f, 0x8b, 8}, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, want string }{
		{filepath.Join(t.TempDir(), "none.tar"), "no such file"},
		{garbage, "is not a tar of images as written by docker save or skopeo"},
		{halfGzip, "is not a tar of images"},
		{writeArchive(t, false, map[string]string{"notes.txt": "x"}), "holds no image"},
		{writeArchive(t, false, map[string]string{"index.json": "{"}), "read index.json"},
		{writeArchive(t, false, map[string]string{"manifest.json": "{}"}), "read manifest.json"},
		{writeArchive(t, false, map[string]string{"index.json": index(`"org.opencontainers.image.ref.name":"1"`)}), "docker save NAME:TAG"},
		{writeArchive(t, false, map[string]string{"manifest.json": `[{"RepoTags":null}]`}), "have no names"},
		{writeArchive(t, false, map[string]string{"manifest.json": `[{"RepoTags":["UPPER CASE"]}]`}), `"UPPER CASE" is not the name of an image`},
	} {
		if names, err := Names(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v, want the error %q", names, err, c.want)
		}
	}
}

// TestNamesOfOurOwnArchives checks that the archives of WriteTar have full names, also when they
// were given short ones.
func TestNamesOfOurOwnArchives(t *testing.T) {
	b, r := project(t)
	amd64, arm64 := build(t, b, r, "amd64"), build(t, b, r, "arm64")
	one, several := filepath.Join(t.TempDir(), "one.tar"), filepath.Join(t.TempDir(), "several.tar")
	if err := WriteTar(one, "someone/thing:v1", amd64); err != nil {
		t.Fatal(err)
	}
	if err := WriteTar(several, "someone/thing:v1", amd64, arm64); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{one, several} {
		names, err := Names(file)
		if want := (Name{"docker.io/someone/thing:v1", "docker.io/someone/thing:v1"}); err != nil || !slices.Equal(names, []Name{want}) {
			t.Errorf("%s: %v, %v", filepath.Base(file), names, err)
		}
	}
}
