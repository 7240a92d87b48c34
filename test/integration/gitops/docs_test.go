package gitops_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// The commands of docs/gitops.md work as they are written. Left out are those of helm, which other
// tests call as a library, and the wait for pods, which do not run here.
func TestCommandsOfThePage(t *testing.T) {
	cps := harness.Fresh(t, 2)
	shell := newShell(t, map[string]*controlplane.ControlPlane{"broker": cps[0], "east": cps[1]})
	east := memberOf(t, cps[1], "east")
	ran := 0
	for _, line := range documented(t) {
		switch {
		case strings.HasPrefix(line, "helm "), strings.Contains(line, "wait deployment/"):
			continue
		case strings.HasPrefix(line, "kubectl wait clusterproperty"): // the first that needs the agent
			runAgent(t, cps[1])
			east.Namespace(t, "shop")
			east.Serve(t, fleet.NewService("shop", "web"), "10.1.0.1")
			east.Export(t, "shop", "web")
			east.AwaitImport(t, "shop", "web", map[string][]string{"east": {"10.1.0.1"}})
		}
		harness.Eventually(t, line, func() error { return shell(line) })
		ran++
	}
	if ran < 8 {
		t.Errorf("only %d commands were found", ran)
	}
}

// documented returns the lines of all code blocks of the page.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	root, err := kubeparts.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "gitops.md"))
	must(t, err)
	inBlock := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = !inBlock
		case inBlock:
			lines = append(lines, line)
		}
	}
	return lines
}

// newShell returns a function that runs a line of a shell with seamark and kubectl, in a folder of
// its own, and with a context for each cluster. The context in use is east.
func newShell(t *testing.T, planes map[string]*controlplane.ControlPlane) func(line string) error {
	t.Helper()
	dir := t.TempDir()
	configs := map[string]*rest.Config{}
	for name, cp := range planes {
		configs[name] = cp.Config()
	}
	config := harness.Kubeconfig(configs, "")
	config.CurrentContext = "east"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, kubeconfig))
	bin := filepath.Join(dir, "bin")
	must(t, os.Mkdir(bin, 0o700))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "seamark"), "github.com/seamark-dev/seamark/cmd/seamark")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build seamark: %v\n%s", err, out)
	}
	kube, err := kubeparts.Kube(context.Background(), os.Stderr)
	must(t, err)
	script := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", kube)
	must(t, os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700))
	return func(line string) error {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}
