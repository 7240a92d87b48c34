//go:build linux

package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownerVariable marks the processes of a sandbox in their environment, with the folder of their
// cluster. Unlike the records of process ids, the mark also finds processes that were started by a
// command that was killed before it could write the record.
const ownerVariable = "SEAMARK_SANDBOX_OWNER"

// process identifies a process. Process ids are used again, but not with the same start time in the
// same boot.
type process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since the machine started.
	Start uint64 `json:"start"`
	// Boot is the kernel's id of the boot, which changes with a restart of the machine.
	Boot string `json:"boot"`
}

// component is a program of a cluster that runs all the time.
type component struct {
	name    string
	program string   // path of the program, if it is not the first of args
	args    []string // with the path or name of the program
	dir     string   // working directory
	path    string   // prefix of its PATH, with a colon at the end
}

func (c cluster) record(component string) string { return c.path("run", component+".json") }

// running returns the recorded process of a component and reports whether it is alive.
func (c cluster) running(component string) (process, bool) {
	text, err := os.ReadFile(c.record(component))
	if err != nil {
		return process{}, false
	}
	var p process
	if json.Unmarshal(text, &p) != nil {
		return process{}, false
	}
	return p, p.alive()
}

// start runs a component in the cluster's network namespace, unless it runs already. It is
// detached: it outlives this process and its terminal. Its output is appended to its log.
func (c cluster) start(comp component) error {
	if _, alive := c.running(comp.name); alive {
		return nil
	}
	if err := c.spawn(comp); err != nil {
		return fmt.Errorf("cluster %s: start %s: %w", c.name, comp.name, err)
	}
	return nil
}

func (c cluster) spawn(comp component) error {
	log, err := os.OpenFile(c.log(comp.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	cmd := &exec.Cmd{
		Path: cmp.Or(comp.program, comp.args[0]), Args: comp.args, Dir: comp.dir, Stdout: log, Stderr: log,
		// Only what the programs need: proxy and Kubernetes settings of the caller must not affect them.
		Env: []string{
			"PATH=" + comp.path + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + c.dir, "TMPDIR=" + os.TempDir(), ownerVariable + "=" + c.dir,
		},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := inNetns(c.netns, cmd.Start); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // reap it if it ends before this process does
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return writeFile(c.record(comp.name), text)
}

// writeFile replaces a file atomically. Only its owner can read it.
func writeFile(path string, text []byte) error {
	temporary := path + ".partial"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// identify returns the identity of the process that has an id now.
func identify(pid int) (process, error) {
	boot, err := bootID()
	if err != nil {
		return process{}, err
	}
	start, _, err := stat(pid)
	return process{PID: pid, Start: start, Boot: boot}, err
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// stat returns the start time and the state of a process. The name of the program, in parentheses,
// may contain any character.
func stat(pid int) (start uint64, state string, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const stateField, startField = 0, 19 // of those after the name
	if len(fields) <= startField {
		return 0, "", fmt.Errorf("process %d: /proc has no start time", pid)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return start, fields[stateField], err
}

// alive reports whether the process runs. A zombie does not.
func (p process) alive() bool {
	boot, err := bootID()
	if err != nil || boot != p.Boot {
		return false
	}
	start, state, err := stat(p.PID)
	return err == nil && start == p.Start && state != "Z" && state != "X"
}

// hasArgs reports whether the process was started with the arguments.
func (p process) hasArgs(args []string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cmdline"))
	return err == nil && string(text) == strings.Join(args, "\x00")+"\x00"
}

// kill stops the process and waits until it has ended: with SIGTERM first when there is a timeout
// for it, then with SIGKILL.
func (p process) kill(timeout time.Duration) error {
	handle, err := os.FindProcess(p.PID) // stays with this process, also when the id is used again
	if err != nil {
		return err
	}
	defer handle.Release() //nolint:errcheck // nothing depends on it
	if !p.alive() {
		return nil
	}
	if timeout > 0 {
		_ = handle.Signal(syscall.SIGTERM)
		if p.awaitExit(timeout) {
			return nil
		}
	}
	if err := handle.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	if !p.awaitExit(30 * time.Second) {
		return fmt.Errorf("process %d has not ended 30 s after SIGKILL", p.PID)
	}
	return nil
}

// awaitExit reports whether the process ends within the timeout.
func (p process) awaitExit(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !p.alive() {
			return true
		}
	}
	return !p.alive()
}

// processes returns all processes of the machine for which belongs returns true, given their folder
// in /proc.
func processes(belongs func(proc string) bool) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !belongs(filepath.Join("/proc", entry.Name())) {
			continue
		}
		if p, err := identify(pid); err == nil && p.alive() { // otherwise it ended meanwhile
			list = append(list, p)
		}
	}
	return list, nil
}

// carriesMark reports whether a process carries the mark of the cluster: it is a component or a
// shim of its containerd.
func (c cluster) carriesMark(proc string) bool {
	environment, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return false
	}
	want := []byte(ownerVariable + "=" + c.dir)
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if bytes.Equal(entry, want) {
			return true
		}
	}
	return false
}

// inContainer reports whether a process is in one of the cluster's containers: its root is an
// overlay whose layers are below the cluster's folder. Containers do not inherit the mark.
func (c cluster) inContainer(proc string) bool {
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(mounts) {
		fields := strings.Fields(string(line))
		if len(fields) > 5 && fields[4] == "/" {
			return strings.Contains(fields[len(fields)-1], "upperdir="+c.path("containerd")+"/")
		}
	}
	return false
}
