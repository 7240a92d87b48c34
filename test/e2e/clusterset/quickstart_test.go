//go:build linux

package clusterset_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// TestQuickStart checks that docs/quick-start.md has commands. They run as the first step of
// TestClusterset, because creating a sandbox for them alone would take long.
func TestQuickStart(t *testing.T) {
	if commands := quickStartCommands(t); len(commands) < 10 {
		t.Errorf("docs/quick-start.md has only the commands %q", commands)
	}
}

// quickStartCommands returns the lines after "$ " in the page's console blocks. The commands of its
// setup blocks, which create and remove the sandbox, are not among them.
func quickStartCommands(t *testing.T) []string {
	t.Helper()
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "quick-start.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && strings.HasPrefix(line, "$ "):
			out = append(out, strings.TrimPrefix(line, "$ "))
		}
	}
	return out
}

// quickStart runs the commands of docs/quick-start.md as a reader would, and checks that both
// clusters answer the requests.
func quickStart(s *suite) {
	bin := s.TempDir()
	kube, err := kubeparts.Kube(s.Context(), os.Stderr)
	s.must(err)
	script := "#!/bin/sh\nexec " + kube + " kubectl \"$@\"\n"
	s.must(os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700))
	s.must(os.Symlink(s.CLI, filepath.Join(bin, "seamark")))
	for _, command := range quickStartCommands(s.T) {
		output := s.runAsReader(bin, command)
		s.Logf("$ %s\n%s", command, output)
		if strings.Contains(command, "workload call") {
			for _, want := range []string{`"` + s.first + `":`, `"` + s.second + `":`, `"failed": 0`} {
				if !strings.Contains(output, want) {
					s.Errorf("the output of %s lacks %s:\n%s", command, want, output)
				}
			}
		}
	}
	errs := make([]error, len(s.Clusters()))
	var all sync.WaitGroup
	for i, cluster := range s.Clusters() { // in parallel, because pods take seconds to terminate
		all.Go(func() { _, errs[i] = s.Kubectl(s.Context(), cluster, "delete", "namespace", "shop") })
	}
	all.Wait()
	s.must(errors.Join(errs...))
}

// runAsReader runs a command of the page. Like a reader it retries for a while when the cluster is
// not ready for the command yet.
func (s *suite) runAsReader(bin, command string) string {
	s.Helper()
	var output string
	s.eventually(command, timeout, func() error {
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-ec", command)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.Kubeconfig(), "WORKLOAD="+s.WorkloadImage())
		out, err := cmd.CombinedOutput()
		output = string(out)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	return output
}
