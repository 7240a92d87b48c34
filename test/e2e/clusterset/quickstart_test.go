//go:build linux

package clusterset_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// TestQuickStart names the test that docs/quick-start.md speaks of: the commands run as the first
// step of every sandbox in TestClusterset, because making one is most of the work. Here it is
// checked that there are some.
func TestQuickStart(t *testing.T) {
	if commands := quickStartCommands(t); len(commands) < 10 {
		t.Errorf("docs/quick-start.md has only the commands %q", commands)
	}
}

// quickStartCommands are the lines after "$ " in the page's console blocks. Its setup blocks make
// and remove the sandbox.
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

// quickStart runs the commands of docs/quick-start.md as a reader would, and looks at what the last
// use of the service says.
func quickStart(s *suite) {
	bin := s.TempDir()
	kube, err := kubeparts.Kube(s.Context(), os.Stderr)
	s.must(err)
	script := "#!/bin/sh\nexec " + kube + " kubectl \"$@\"\n"
	s.must(os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700))
	s.must(os.Symlink(s.CLI, filepath.Join(bin, "seamark")))
	for _, command := range quickStartCommands(s.T) {
		said := s.asReader(bin, command)
		s.Logf("$ %s\n%s", command, said)
		if strings.Contains(command, "workload call") {
			for _, cluster := range []string{`"` + s.first + `":`, `"` + s.second + `":`, `"failed": 0`} {
				if !strings.Contains(said, cluster) {
					s.Errorf("%s is missing in the answer to %s:\n%s", cluster, command, said)
				}
			}
		}
	}
	gone := make([]error, len(s.Clusters()))
	var all sync.WaitGroup
	for i, cluster := range s.Clusters() { // pods take their time to end
		all.Go(func() { _, gone[i] = s.Kubectl(s.Context(), cluster, "delete", "namespace", "shop") })
	}
	all.Wait()
	s.must(errors.Join(gone...))
}

// asReader runs a command of the page; a reader tries again for a while when the first try comes
// too early.
func (s *suite) asReader(bin, command string) string {
	s.Helper()
	var said string
	s.eventually(command, timeout, func() error {
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-ec", command)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.Kubeconfig(), "WORKLOAD="+s.WorkloadImage())
		out, err := cmd.CombinedOutput()
		said = string(out)
		if err != nil {
			return &commandError{said, err}
		}
		return nil
	})
	return said
}

type commandError struct {
	said string
	err  error
}

func (e *commandError) Error() string { return e.err.Error() + ": " + e.said }
func (e *commandError) Unwrap() error { return e.err }
