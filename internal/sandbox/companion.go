//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// StartCompanion starts a program on this machine that uses the clusters, and returns the file with
// its output. The program outlives this process and its terminal, and Down ends it. It carries the
// mark of the first cluster, which always exists.
func (s *Sandbox) StartCompanion(name string, args ...string) (log string, err error) {
	c := s.plan.clusters[0]
	log = c.log(name)
	// Only this run's output: the caller looks for something in it.
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	cmd := &exec.Cmd{
		Path: args[0], Args: args, Dir: c.dir, Stdout: file, Stderr: file, Env: append(os.Environ(), ownerVariable+"="+c.dir),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s beside sandbox %s: %w", name, s.plan.name, err)
	}
	go func() { _ = cmd.Wait() }() // reap it if it ends before this process does
	return log, nil
}
