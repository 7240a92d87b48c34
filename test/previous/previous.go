// Package previous builds the programs of the version before this one, for tests of upgrades.
package previous

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// Commit is the last commit of that version. It is in the history of this repository.
const Commit = "be02871a591f59c274f6cba90a204fe3d60c129c"

// Programs are the paths of what was built.
type Programs struct {
	// CLI is seamark, Agent is seamark-agent, Image the image of the daemons as a file.
	CLI, Agent, Image string
}

// Build builds the programs once, and keeps them in the cache.
func Build() (Programs, error) {
	cache, err := kubeparts.CacheDir()
	if err != nil {
		return Programs{}, err
	}
	dir := filepath.Join(cache, "previous", fmt.Sprintf("%s-%s-%s-image", Commit[:12], runtime.GOOS, runtime.GOARCH))
	built := Programs{CLI: filepath.Join(dir, "seamark"), Agent: filepath.Join(dir, "seamark-agent"), Image: filepath.Join(dir, "seamark.tar")}
	if _, err := os.Stat(dir); err == nil {
		return built, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return Programs{}, fmt.Errorf("make the cache: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return Programs{}, fmt.Errorf("make the cache: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left of it is in the way of nothing
	source, binaries := filepath.Join(work, "source"), filepath.Join(work, "bin")
	if err := checkout(source); err != nil {
		return Programs{}, err
	}
	for _, args := range [][]string{
		{"build", "-trimpath", "-buildvcs=false", "-o", binaries + "/", "./cmd/seamark", "./cmd/seamark-agent"},
		{"run", "-buildvcs=false", "./build/images", "-version", "previous", "-o", filepath.Join(binaries, "seamark.tar")},
	} {
		build := exec.Command("go", args...)
		build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return Programs{}, fmt.Errorf("build the previous version: %w\n%s", err, out)
		}
	}
	if err := os.Rename(binaries, dir); err != nil {
		if _, stat := os.Stat(dir); stat != nil { // no other process was faster
			return Programs{}, fmt.Errorf("keep the previous version: %w", err)
		}
	}
	return built, nil
}

// checkout writes the files of that version.
func checkout(dir string) error {
	root, err := kubeparts.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make a folder for the previous version: %w", err)
	}
	var files, problems bytes.Buffer
	// Git refuses to work in a checkout that another user owns, unless it is named.
	archive := exec.Command("git", "-c", "safe.directory="+root, "-C", root, "archive", Commit)
	archive.Stdout, archive.Stderr = &files, &problems
	if err := archive.Run(); err != nil {
		return fmt.Errorf("read the previous version (commit %s) from the history: %w: %s: clone the repository with its whole history",
			Commit[:12], err, problems.String())
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = &files
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack the previous version: %w: %s", err, out)
	}
	return nil
}
