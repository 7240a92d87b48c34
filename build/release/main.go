// Command release makes a release of Seamark into a folder: the command line for all platforms, the
// image, the chart, manifests, an SBOM, a krew manifest and checksums. It needs Go, and git for the
// time of the commit, and no other program. `make release` calls it with the version:
//
//	go run -ldflags "-X …/internal/daemon/version.version=v1.2.3" ./build/release -o bin/release
//
// The version is that of this program, because the chart and the manifests are embedded in it. Two
// builds of one commit with one version of Go are the same, byte for byte. With -verify the program
// builds a second time in another folder and compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

type options struct {
	output, platforms, baseURL string
	verify, sharedCache        bool
}

func main() {
	var o options
	flag.StringVar(&o.output, "o", "bin/release", "the `folder` of the release; an earlier release there is replaced")
	flag.StringVar(&o.platforms, "platforms", "", "platforms, separated by commas (default: all)")
	flag.StringVar(&o.baseURL, "base-url", "https://github.com/seamark-dev/seamark/releases/download",
		"where releases are published; the krew manifest has `URL`/VERSION/ARCHIVE")
	flag.BoolVar(&o.verify, "verify", false, "compare the release in the folder with a build of the last commit in another folder")
	flag.BoolVar(&o.sharedCache, "shared-cache", false, "with -verify: use Go's build cache, which is faster and proves less")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: see -help", flag.Arg(0))
	}
	r, err := describe(ctx, o)
	if err != nil {
		return err
	}
	output, err := filepath.Abs(o.output)
	if err != nil {
		return err
	}
	if o.verify {
		return r.verify(ctx, output, o.sharedCache)
	}
	return r.replace(output, func(dir string) error { return r.build(ctx, dir) })
}

// describe reads what the release depends on.
func describe(ctx context.Context, o options) (release, error) {
	r := release{version: version.String(), baseURL: o.baseURL}
	if err := checkVersion(r.version); err != nil {
		return r, err
	}
	var err error
	if r.platforms, err = parsePlatforms(o.platforms); err != nil {
		return r, err
	}
	if r.root, err = kubeparts.Root(); err != nil {
		return r, err
	}
	r.time, err = commitTime(ctx, r.root)
	return r, err
}

// commitTime returns SOURCE_DATE_EPOCH, by which build systems choose the time of what they build,
// or the time of the last commit.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		t, err := parseEpoch(text)
		if err != nil {
			return t, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		return t, nil
	}
	text, err := capture(exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the last commit; outside of a git checkout set SOURCE_DATE_EPOCH: %w", err)
	}
	return parseEpoch(text)
}

// replace lets build fill a new folder and puts it in the place of output. It refuses to replace a
// folder that is not a release.
func (r release) replace(output string, build func(dir string) error) (err error) {
	if entries, err := os.ReadDir(output); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(output, sumsFile)); err != nil {
			return fmt.Errorf("folder %s has files that are not of a release (%s is missing): choose another with -o", output, sumsFile)
		}
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(output), filepath.Base(output)+".partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := errors.Join(build(dir), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	if err := os.Rename(dir, output); err != nil {
		return err
	}
	progress("release %s: written to %s", r.version, output)
	return nil
}

func progress(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }
