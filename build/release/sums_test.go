package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sumOfX = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // printf x | sha256sum

func writeFiles(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSums(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"b": "x", "a": "x", sumsFile: "old"})
	sums, err := sumsOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := string(formatSums(sums))
	if want := sumOfX + "  a\n" + sumOfX + "  b\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if parsed, err := parseSums(text); err != nil || !maps.Equal(parsed, sums) {
		t.Errorf("read %v, %v, wrote %v", parsed, err, sums)
	}
	if _, err := parseSums("nonsense\n"); err == nil {
		t.Error("a line without a file name was accepted")
	}
}

func TestDifferences(t *testing.T) {
	got := differences("here", map[string]string{"same": "1", "changed": "1", "lost": "1"},
		"there", map[string]string{"same": "1", "changed": "2", "new": "1"})
	want := []string{"changed: 1 in here, 2 in there", "lost: only in here", "new: only in there"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReleaseThatWasChanged(t *testing.T) {
	dir := t.TempDir()
	if _, err := verifySums(dir); err == nil || !strings.Contains(err.Error(), "run make release first") {
		t.Errorf("no release: %v", err)
	}
	writeFiles(t, dir, map[string]string{"a": "x", sumsFile: sumOfX + "  a\n"})
	if sums, err := verifySums(dir); err != nil || sums["a"] != sumOfX {
		t.Errorf("an unchanged release: %v, %v", sums, err)
	}
	writeFiles(t, dir, map[string]string{"a": "y"})
	if _, err := verifySums(dir); err == nil || !strings.Contains(err.Error(), "make the release again") {
		t.Errorf("a changed file: %v", err)
	}
}

// TestOnlyReleasesAreReplaced checks that a folder with other files stays as it is, and that a
// failed build leaves an earlier release and nothing else.
func TestOnlyReleasesAreReplaced(t *testing.T) {
	r, parent := release{version: "v1.2.3"}, t.TempDir()
	target := filepath.Join(parent, "target")
	build := func(dir string) error { return os.WriteFile(filepath.Join(dir, sumsFile), []byte("new"), 0o644) }
	if err := r.replace(target, build); err != nil {
		t.Fatalf("no folder: %v", err)
	}
	if err := r.replace(target, build); err != nil {
		t.Errorf("an earlier release: %v", err)
	}
	if err := r.replace(target, func(string) error { return os.ErrInvalid }); err == nil {
		t.Error("the error of a build was lost")
	}
	if text, err := os.ReadFile(filepath.Join(target, sumsFile)); err != nil || string(text) != "new" {
		t.Errorf("after a failed build: %q, %v", text, err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("after a failed build there are %v, %v", left, err)
	}
	precious := t.TempDir()
	writeFiles(t, precious, map[string]string{"thesis.txt": "x"})
	if err := r.replace(precious, build); err == nil || !strings.Contains(err.Error(), "choose another with -o") {
		t.Errorf("a folder with other files: %v", err)
	}
}
