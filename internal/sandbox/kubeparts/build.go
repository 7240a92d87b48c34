package kubeparts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// progressInterval is how often a long build or wait prints that it continues.
const progressInterval = 30 * time.Second

// kubeSteps are the packages of the `kube` binary that take long to compile. They are built one
// after the other only to print a line of progress for each: the link step finds them in Go's build
// cache. Later ones share most packages with the first.
var kubeSteps = []struct{ label, pkg string }{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver/app"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager/app"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler/app"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy/app"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet/app"},
	{"kubectl", "k8s.io/kubectl/pkg/cmd"},
	{"etcd", "go.etcd.io/etcd/server/v3/etcdmain"},
}

func kubePart(root string) part {
	return part{name: "kube", dir: filepath.Join(root, "build", "kube"), versionOf: "k8s.io/kubernetes", plan: planKube}
}

func planKube(_ context.Context, _ part, version, out string) ([]step, error) {
	var steps []step
	for _, s := range kubeSteps {
		steps = append(steps, step{s.label, slices.Concat([]string{"build"}, buildFlags(), []string{s.pkg})})
	}
	link := slices.Concat([]string{"build"}, buildFlags(),
		[]string{"-ldflags", strings.Join(versionFlags(version), " "), "-o", filepath.Join(out, "kube"), "."})
	return append(steps, step{"link", link}), nil
}

func nodePart(root string) part {
	return part{name: "node", dir: filepath.Join(root, "build", "node"), versionOf: "github.com/containerd/containerd/v2", plan: planNode}
}

// planNode builds every tool that the module's go.mod lists. Each file has the last element of the
// package path as its name, by which containerd and the CNI find it.
func planNode(ctx context.Context, p part, _, out string) ([]step, error) {
	text, err := goTool(ctx, p.dir, "mod", "edit", "-json")
	if err != nil {
		return nil, fmt.Errorf("read the tools that %s lists: %w", filepath.Join(p.dir, "go.mod"), err)
	}
	var gomod struct{ Tool []struct{ Path string } }
	if err := json.Unmarshal(text, &gomod); err != nil {
		return nil, fmt.Errorf("read the tools that %s lists: %w", filepath.Join(p.dir, "go.mod"), err)
	}
	var steps []step
	for _, tool := range gomod.Tool {
		name := path.Base(tool.Path)
		steps = append(steps, step{name, slices.Concat([]string{"build"}, buildFlags(),
			[]string{"-ldflags", "-s -w", "-o", filepath.Join(out, name), tool.Path})})
	}
	return steps, nil
}

func lighthousePart(root string) part {
	return part{
		name: "lighthouse", dir: filepath.Join(root, "build", "lighthouse"), versionOf: lighthouseModule, plan: planLighthouse,
	}
}

const (
	lighthouseModule = "github.com/submariner-io/lighthouse"
	operatorModule   = "github.com/submariner-io/submariner-operator"
)

// planLighthouse builds the agent as processes of tests run it, and a program that prints the CRDs
// which Submariner's operator writes. For tests with pods it builds the commands of Submariner's
// own images, and a program that prints what `subctl join` applies.
func planLighthouse(_ context.Context, _ part, _, out string) ([]step, error) {
	program := func(name, pkg string) step {
		return step{name, slices.Concat([]string{"build"}, buildFlags(), []string{"-ldflags", "-s -w", "-o", filepath.Join(out, name), pkg})}
	}
	return []step{
		program("lighthouse-crds", "."), program("lighthouse-agent", "./agent"), program(SubmarinerManifests, "./manifests"),
		program(SubmarinerAgent, lighthouseModule+"/pkg/agent"), program(SubmarinerOperator, operatorModule+"/cmd"),
	}, nil
}

// buildFlags make the result the same in every folder, and keep Go from running a version control
// system: the checkout may be an unpacked archive.
func buildFlags() []string { return []string{"-trimpath", "-buildvcs=false"} }

// buildEnv returns an environment for static binaries for this machine, even when the caller's
// environment cross-compiles, and without a go.work above the repository.
func buildEnv() []string {
	return []string{"CGO_ENABLED=0", "GOWORK=off", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH}
}

// versionFlags set the version of a Kubernetes release. Without them the version is v0.0.0, and
// features that depend on the version misbehave.
func versionFlags(version string) []string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+version, "-X "+pkg+".gitMajor="+major, "-X "+pkg+".gitMinor="+minor)
	}
	return flags
}

func runSteps(ctx context.Context, progress io.Writer, p part, version string, steps []step) error {
	started := time.Now()
	printf(progress, "%s %s is not in the cache; building it once, which takes some minutes", p.name, version)
	for i, s := range steps {
		if err := runStep(ctx, progress, p, fmt.Sprintf("[%d/%d] %s", i+1, len(steps), s.label), s); err != nil {
			return err
		}
	}
	printf(progress, "%s %s: built in %s", p.name, version, seconds(time.Since(started)))
	return nil
}

func runStep(ctx context.Context, progress io.Writer, p part, label string, s step) error {
	started := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := goTool(ctx, p.dir, s.args...)
		done <- err
	}()
	beat := time.NewTicker(progressInterval)
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s of %s: %w", s.label, p.name, err)
			}
			printf(progress, "%s: %s … %s", p.name, label, seconds(time.Since(started)))
			return nil
		case <-beat.C:
			printf(progress, "%s: %s … still building, %s", p.name, label, seconds(time.Since(started)))
		}
	}
}

// goTool runs the Go tool in dir and returns its standard output. The tool is stopped when ctx or
// this process ends.
func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), buildEnv()...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	endWithParent(cmd)
	// Pdeathsig is sent when the thread that started the child ends, so keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the Go tool is needed to build the parts; install Go and put it on the PATH: %w", err)
	case err != nil:
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

func printf(progress io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(progress, format+"\n", args...) // a failure to print progress must not stop the build
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0fs", d.Seconds()) }
