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

// errPortTaken is wrapped when a start failed because another process listens on one of the ports.
var errPortTaken = errors.New("another process has taken a port")

// child is one process of a control plane.
type child struct {
	name    string
	log     string
	logFrom int64 // offset of the first line of this run
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process has ended and was waited for
}

// spawn starts `kube component args…` and appends its output to the log file.
func spawn(kube, component string, args, env []string, log string) (*child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// Not exec.CommandContext: the process outlives the context of the call that starts it.
	cmd := &exec.Cmd{
		Path:   kube,
		Args:   append([]string{kube, component}, args...),
		Stdout: file,
		Stderr: file,
		// Only what the programs need: proxy and Kubernetes settings of the caller must not affect them.
		Env:         append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, env...),
		SysProcAttr: childAttributes(),
	}
	if err := sharedSpawner().start(cmd); err != nil {
		return nil, err
	}
	c := &child{name: component, log: log, logFrom: info.Size(), cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(c.exited)
	}()
	return c, nil
}

// stop sends the signal to the process and kills it when it has not ended within the timeout; a
// timeout of zero kills at once. It returns when the process has ended, and fails when SIGKILL does
// not end it.
func (c *child) stop(signal syscall.Signal, timeout time.Duration) error {
	// A paused process handles no signal but SIGKILL until SIGCONT.
	_ = c.signal(signal)
	_ = c.signal(syscall.SIGCONT)
	if timeout > 0 {
		select {
		case <-c.exited:
			return nil
		case <-time.After(timeout):
		}
	}
	_ = c.signal(syscall.SIGKILL)
	select {
	case <-c.exited:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s (process %d) has not ended 30 s after SIGKILL", c.name, c.cmd.Process.Pid)
	}
}

// signal sends a signal to the process and its children. It returns os.ErrProcessDone when the
// process has ended.
func (c *child) signal(signal syscall.Signal) error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s: %w", c.name, os.ErrProcessDone)
	default:
		return syscall.Kill(-c.cmd.Process.Pid, signal)
	}
}

// failure returns an error with the end of the log of a process that ended during its start.
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

// spawner starts processes from a thread that exists as long as this process.
//
// On Linux the signal for the parent's death (Pdeathsig) is sent when the *thread* that started the
// child ends (https://go.dev/issue/27505), and Go may end threads at any time. So all children are
// started by one goroutine that stays locked to its thread.
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
