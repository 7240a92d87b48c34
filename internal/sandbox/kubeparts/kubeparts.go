// Package kubeparts returns the programs of a real cluster, and builds them from Go modules when
// they are missing: one `kube` binary (nested module build/kube), the programs of a node (nested
// module build/node), and the agent of Submariner Lighthouse (nested module build/lighthouse).
//
// They are kept in a cache outside the repository, in a folder whose name is derived from all
// inputs of the build. A folder there is complete or absent: it is built under another name and
// renamed when done, so no run uses the result of a build that was killed. When several processes
// need the same part, one builds it and the others wait.
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

// Kube returns the path of the `kube` binary, whose first argument chooses the component
// (kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl, etcd).
// When it is not in the cache, Kube builds it, which takes minutes, and prints a line per component
// to progress.
//
// It fails outside a checkout of the repository, when the Go tool is missing, when a module cannot
// be fetched or built, and when ctx ends.
func Kube(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := find(ctx, progress, kubePart)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "kube"), nil
}

// Node returns the folder that holds containerd, containerd-shim-runc-v2, ctr and the CNI plugins
// bridge, host-local, loopback and portmap. It builds and fails as Kube does.
func Node(ctx context.Context, progress io.Writer) (string, error) {
	return find(ctx, progress, nodePart)
}

// The programs in the folder of Lighthouse that run in pods: those of Submariner's images, and one
// that prints what must be applied before.
const (
	SubmarinerOperator  = "submariner-operator"
	SubmarinerAgent     = "submariner-lighthouse-agent"
	SubmarinerManifests = "submariner-manifests"
)

// Lighthouse returns the folder that holds lighthouse-agent, the agent of Submariner Lighthouse
// for use outside a cluster, lighthouse-crds, which prints the CRDs that Submariner's operator
// writes, and the programs above. Tests of migrations run them. It builds and fails as Kube does.
func Lighthouse(ctx context.Context, progress io.Writer) (string, error) {
	return find(ctx, progress, lighthousePart)
}

// part is one nested module and what its build leaves in the cache.
type part struct {
	name string // folder in the cache
	dir  string // absolute path of the nested module
	// versionOf is the module whose version is that of the part.
	versionOf string
	// plan returns the steps of a build into the folder out.
	plan func(ctx context.Context, p part, version, out string) ([]step, error)
}

// step is one call of the Go tool, with its own line of progress.
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
		return "", fmt.Errorf("identify the part in %s: %w", p.dir, err)
	}
	final := filepath.Join(cache, p.name, key)
	if exists(final) {
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("create the cache for built parts (set %s to choose another folder): %w", CacheEnv, err)
	}
	unlock, err := lock(ctx, progress, final+".lock", p.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) { // built by the process that held the lock
		return final, nil
	}
	if err := p.build(ctx, progress, version, final); err != nil {
		return "", err
	}
	return final, nil
}

// build fills a folder of another name and renames it to final. The caller holds the lock of final.
func (p part) build(ctx context.Context, progress io.Writer, version, final string) (err error) {
	// The lock is held, so a folder with a temporary name was left by a process that was killed.
	leftovers, err := filepath.Glob(final + ".partial-*")
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the folder of an interrupted build: %w", err)
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

// Root returns the top folder of the checkout that the working directory is in. It fails when there
// is none.
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
			return "", fmt.Errorf("%s is not in a checkout of %s, which is needed to build the parts: "+
				"clone the repository and run this command in it", start, modulePath)
		}
	}
}

// CacheDir returns the folder for everything that is built once and kept outside the repository.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", CacheEnv, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder (set %s to choose another): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "seamark"), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func platform() string { return runtime.GOOS + "-" + runtime.GOARCH }
