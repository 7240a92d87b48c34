package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// verify checks that the release in a folder has the checksums that it claims, and that a build of
// the last commit in another folder gives the same files. Unless sharedCache is set, that build
// compiles everything again.
func (r release) verify(ctx context.Context, dir string, sharedCache bool) (err error) {
	first, err := verifySums(dir)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "seamark-verify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	checkout, second := filepath.Join(temporary, "checkout"), filepath.Join(temporary, "release")
	if _, err := capture(exec.CommandContext(ctx, "git", "clone", "--quiet", "--no-local", r.root, checkout)); err != nil {
		return err
	}
	environment := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
	if !sharedCache {
		environment = append(environment, "GOCACHE="+filepath.Join(temporary, "cache"))
	}
	if err := r.buildIn(ctx, checkout, second, environment); err != nil {
		return err
	}
	built, err := sumsOf(second)
	if err != nil {
		return err
	}
	if lines := differences(dir, first, "the second build", built); len(lines) > 0 {
		return fmt.Errorf("the build in %s differs from a build of the last commit:\n%s", dir, strings.Join(lines, "\n"))
	}
	progress("release %s: %d files are the same in a build of the last commit in another folder", r.version, len(built))
	return nil
}

// buildIn makes the same release from another checkout.
func (r release) buildIn(ctx context.Context, checkout, output string, environment []string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "-buildvcs=false",
		"-ldflags", "-X github.com/seamark-dev/seamark/internal/daemon/version.version="+r.version,
		"./build/release", "-o", output, "-platforms", joinPlatforms(r.platforms, ","), "-base-url", r.baseURL)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the release again in %s: %w", checkout, err)
	}
	return nil
}

// verifySums compares the files of a release with its checksums, and returns them.
func verifySums(dir string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, fmt.Errorf("there is no release to verify: run make release first: %w", err)
	}
	claimed, err := parseSums(string(text))
	if err != nil {
		return nil, err
	}
	sums, err := sumsOf(dir)
	if err != nil {
		return nil, err
	}
	if lines := differences(sumsFile, claimed, dir, sums); len(lines) > 0 {
		return nil, fmt.Errorf("files in %s are not those of %s: make the release again:\n%s", dir, sumsFile, strings.Join(lines, "\n"))
	}
	return sums, nil
}

// capture runs a command and returns what it prints. An error has what it wrote to stderr.
func capture(cmd *exec.Cmd) (string, error) {
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(text), err
}
