package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

const tried = "v0.0.0-test"

// TestReleaseIsReproducible makes a release for this machine in two folders, as make release does,
// and compares them. `make release-verify` does so for all platforms and with an empty cache.
func TestReleaseIsReproducible(t *testing.T) {
	parent := t.TempDir()
	first := makeRelease(t, filepath.Join(parent, "one"))
	second := makeRelease(t, filepath.Join(parent, "another", "folder"))
	sums, err := verifySums(first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := verifySums(second)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range differences("one folder", sums, "another", again) {
		t.Error(line)
	}
	here := image.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	archive := release{version: tried}.archive(here)
	want := []string{"mcs.yaml", "seamark-0.0.0-test.tgz", "seamark_v0.0.0-test.cdx.json", "seamark_v0.0.0-test_broker-crds.yaml",
		"seamark_v0.0.0-test_broker.yaml", "seamark_v0.0.0-test_image.tar", archive, "seamark_v0.0.0-test_member-crds.yaml",
		"seamark_v0.0.0-test_member.yaml"}
	if got := slices.Sorted(maps.Keys(sums)); !slices.Equal(got, want) {
		t.Errorf("the release has %v, want %v", got, want)
	}
	member, err := os.ReadFile(filepath.Join(first, "seamark_v0.0.0-test_member.yaml"))
	if err != nil || !strings.Contains(string(member), "image: \"seamark.dev/seamark:"+tried+"\"") {
		t.Errorf("the manifest of members does not use the image of the release: %v", err)
	}
	checkProgram(t, unpack(t, filepath.Join(first, archive)))
}

// makeRelease copies the checkout into a folder, makes a release there and returns its folder.
func makeRelease(t *testing.T, dir string) string {
	t.Helper()
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	copyCheckout(t, root, dir)
	cmd := exec.CommandContext(t.Context(), "make", "release", "VERSION="+tried, "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, output)
	}
	return filepath.Join(dir, "bin", "release")
}

// copyCheckout copies the files of a checkout without its history and what was built in it.
func copyCheckout(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if slices.Contains([]string{".git", "bin", ".cache", "test-logs"}, relative) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil // a worktree has a file .git
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unpack writes the program in an archive to a file, and returns it.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for entries := tar.NewReader(plain); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no program", archive)
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "seamark" {
			continue
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), header.Name)
		if err := os.WriteFile(path, content, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// checkProgram checks that a released program runs and knows its version.
func checkProgram(t *testing.T, path string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, "version").Output()
	if want := "seamark " + tried + " (" + runtime.Version() + ")\n"; err != nil || string(out) != want {
		t.Errorf("seamark version printed %q, want %q: %v", out, want, err)
	}
}
