package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errPortTaken marks a start that failed because somebody else listens on one of our ports.
var errPortTaken = errors.New("a port was taken in between")

// child is one process of a control plane.
type child struct {
	name    string
	log     string
	logFrom int64 // where the lines of this run begin
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process is gone and waited for
}

// spawn starts `kube component args…`, writing both of its outputs to the end of the log file.
func spawn(kube, component string, args, env []string, log string) (*child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the child has its own copy; ours was never written to
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// Not exec.CommandContext: no context of a caller lives as long as the process is to live.
	cmd := &exec.Cmd{
		Path:   kube,
		Args:   append([]string{kube, component}, args...),
		Stdout: file,
		Stderr: file,
		// The little the programs need, so that no proxy or Kubernetes setting of the caller's leaks into them.
		Env:         append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, env...),
		SysProcAttr: childAttributes(),
	}
	if err := sharedSpawner().start(cmd); err != nil {
		return nil, err
	}
	c := &child{name: component, log: log, logFrom: info.Size(), cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log; that it ended is what we need
		close(c.exited)
	}()
	return c, nil
}

// end sends the signal to the process, waits for grace and then kills. A grace of zero sends only the one signal. It returns when the
// process is gone, and fails when even SIGKILL does not end it.
func (c *child) stop(signal syscall.Signal, grace time.Duration) error {
	// A process that was paused handles no signal but SIGKILL before it continues.
	_ = c.signal(signal)
	_ = c.signal(syscall.SIGCONT)
	if grace > 0 {
		select {
		case <-c.exited:
			return nil
		case <-time.After(grace):
		}
	}
	_ = c.signal(syscall.SIGKILL)
	select {
	case <-c.exited:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s (process %d) does not end, even when killed", c.name, c.cmd.Process.Pid)
	}
}

// signal reaches the process and whatever it started. A process that is gone is no error to a caller who wants it gone,
// and is reported as os.ErrProcessDone to others.
func (c *child) signal(signal syscall.Signal) error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s: %w", c.name, os.ErrProcessDone)
	default:
		return syscall.Kill(-c.cmd.Process.Pid, signal)
	}
}

// failure describes why a process ended, with the end of its log.
func (c *child) failure() error {
	tail := logTail(c.log, c.logFrom)
	err := fmt.Errorf("%s ended while starting; the last lines of %s:\n%s", c.name, c.log, tail)
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// logTail returns the last lines of what was appended to a file since from.
func logTail(path string, from int64) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = text[min(from, int64(len(text))):]
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const shown = 15
	return strings.Join(lines[max(0, len(lines)-shown):], "\n")
}

// spawner starts processes from a thread that lives as long as this process.
//
// On Linux a child that is to die with its parent dies with the parent's *thread* that started it
// (https://go.dev/issue/27505), and Go ends threads as it likes. So all children are started by one goroutine that is locked to its
// thread for good.
type spawner struct{ work chan func() }

var sharedSpawner = sync.OnceValue(func() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work { // the channel is never closed: the thread must not end
			f()
		}
	}()
	return s
})

func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.work <- func() { done <- cmd.Start() }
	return <-done
}
