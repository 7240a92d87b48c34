// Package kubeparts finds the programs a real cluster is made of, and builds them from the Go module proxy when they are
// missing: one `kube` binary (nested module build/kube) and the parts of a node (nested module build/node).
//
// What was built is kept in a cache outside the repository, in a folder whose name is derived from everything that
// determines its content. A folder there is complete or absent: it is built under another name and renamed when done, so
// a build that is killed leaves nothing that a later run would mistake for a result. Processes that want the same part at
// the same time build it once; the others wait for it.
package kubeparts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// CacheEnv names the environment variable that moves the cache away from the user's cache folder.
const CacheEnv = "SEAMARK_CACHE"

// Kube returns the path of the `kube` binary, whose first argument chooses the component (kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl, etcd). When the cache holds it, nothing is
// printed; otherwise it is built, which takes minutes, with a line per component on progress.
//
// It fails outside a checkout of the repository, when the Go tool is missing, when a module cannot be fetched or built,
// and when ctx ends.
func Kube(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := find(ctx, progress, kubePart)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "kube"), nil
}

// Node returns the folder that holds containerd, containerd-shim-runc-v2, ctr and the CNI plugins bridge, host-local,
// loopback and portmap. It builds and fails as Kube does.
func Node(ctx context.Context, progress io.Writer) (string, error) {
	return find(ctx, progress, nodePart)
}

// part is one nested module and what its build leaves in the cache.
type part struct {
	name string // folder in the cache
	dir  string // absolute path of the nested module
	// versionOf is the module whose version names the result: the one a reader knows it by.
	versionOf string
	// plan lists the builds, in order, for a result in folder out.
	plan func(ctx context.Context, p part, version, out string) ([]step, error)
}

// step is one call of the Go tool that gets a line of progress of its own.
type step struct {
	label string
	args  []string // of the go tool
}

func find(ctx context.Context, progress io.Writer, describe func(root string) part) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	return ensure(ctx, progress, cache, describe(root))
}

// ensure returns the finished folder of a part, building it first when it is absent.
func ensure(ctx context.Context, progress io.Writer, cache string, p part) (string, error) {
	version, key, err := p.identify()
	if err != nil {
		return "", fmt.Errorf("identifying what %s would build: %w", p.dir, err)
	}
	final := filepath.Join(cache, p.name, key)
	if exists(final) {
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("creating the cache for built parts (set %s to choose another place): %w", CacheEnv, err)
	}
	unlock, err := lock(ctx, progress, final+".lock", p.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) { // built by the one we waited for
		return final, nil
	}
	if err := p.build(ctx, progress, version, final); err != nil {
		return "", err
	}
	return final, nil
}

// build fills a folder of another name and renames it to final. The caller holds the lock of final.
func (p part) build(ctx context.Context, progress io.Writer, version, final string) (err error) {
	// We hold the lock, so whatever carries a temporary name was left by a process that was killed.
	leftovers, err := filepath.Glob(final + ".partial-*")
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing what an interrupted build left: %w", err)
		}
	}
	partial, err := os.MkdirTemp(filepath.Dir(final), filepath.Base(final)+".partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	steps, err := p.plan(ctx, p, version, partial)
	if err != nil {
		return err
	}
	if err := runSteps(ctx, progress, p, version, steps); err != nil {
		return err
	}
	if err := os.Chmod(partial, 0o755); err != nil { // MkdirTemp made it 0700; a cache may be shared
		return err
	}
	return os.Rename(partial, final)
}

// Root returns the top folder of the checkout that holds the working directory, and fails with advice when there is none.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return rootAbove(dir)
}

const modulePath = "github.com/seamark-dev/seamark"

func rootAbove(start string) (string, error) {
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleOf(text) == modulePath {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of %s, whose build/ folder describes what to build: "+
				"clone the repository and run this from a folder of it", start, modulePath)
		}
	}
}

// CacheDir returns the folder for everything that is built once and kept outside the repository.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", CacheEnv, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder (set %s to choose one): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "seamark"), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func platform() string { return runtime.GOOS + "-" + runtime.GOARCH }
