//go:build linux

package sandbox

import (
	"bytes"
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

// ownerVariable marks the processes of a sandbox in their environment, with the folder of their cluster. Records of process ids tell
// what was started; the mark also finds what was started by a command that was killed before it could write the record.
const ownerVariable = "SEAMARK_SANDBOX_OWNER"

// process is the identity of a process that no later one shares: ids are used again, but not with the same start in the same boot.
type process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since the machine started.
	Start uint64 `json:"start"`
	// Boot tells apart the times before and after a restart of the machine.
	Boot string `json:"boot"`
}

// component is a program of a cluster that is to run all the time.
type component struct {
	name string
	args []string // with the path of the program
	dir  string   // working directory
	path string   // searched for programs before the usual places
}

func (c cluster) record(component string) string { return c.path("run", component+".json") }

// running tells whether the process of a component that was recorded is alive.
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

// start runs a component in the cluster's network namespace, unless it runs. It is detached: it outlives this process and its terminal.
// What it writes is appended to its log.
func (c cluster) start(comp component) (started bool, err error) {
	if _, alive := c.running(comp.name); alive {
		return false, nil
	}
	if err := c.spawn(comp); err != nil {
		return false, fmt.Errorf("cluster %s: starting %s: %w", c.name, comp.name, err)
	}
	return true, nil
}

func (c cluster) spawn(comp component) error {
	log, err := os.OpenFile(c.log(comp.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own copy; ours was never written to
	cmd := &exec.Cmd{
		Path: comp.args[0], Args: comp.args, Dir: comp.dir, Stdout: log, Stderr: log,
		// The little the programs need, so that no proxy or Kubernetes setting of the caller's leaks into them.
		Env: []string{
			"PATH=" + comp.path + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + c.dir, "TMPDIR=" + os.TempDir(), ownerVariable + "=" + c.dir,
		},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := inNetns(c.netns, cmd.Start); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // bury it, should it end while this process still lives
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

// writeFile replaces a file, readable by its owner alone, whole or not at all.
func writeFile(path string, text []byte) error {
	temporary := path + ".partial"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// identify reads what tells a process from others of the same id.
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

// stat reads the start time and the state of a process. The name of the program, in parentheses, may hold anything.
func stat(pid int) (start uint64, state string, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const stateField, startField = 0, 19 // of those after the name
	if len(fields) <= startField {
		return 0, "", fmt.Errorf("process %d: cannot read its start time", pid)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return start, fields[stateField], err
}

// alive tells whether it still runs; what only waits to be buried does not.
func (p process) alive() bool {
	boot, err := bootID()
	if err != nil || boot != p.Boot {
		return false
	}
	start, state, err := stat(p.PID)
	return err == nil && start == p.Start && state != "Z" && state != "X"
}

// kill ends it, gently at first when there is a grace, and waits until it is gone.
func (p process) kill(grace time.Duration) error {
	handle, err := os.FindProcess(p.PID) // holds on to this very process, whatever becomes of the id
	if err != nil {
		return err
	}
	defer handle.Release() //nolint:errcheck // nothing depends on it
	if !p.alive() {
		return nil
	}
	if grace > 0 {
		_ = handle.Signal(syscall.SIGTERM)
		if p.awaitExit(grace) {
			return nil
		}
	}
	if err := handle.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending process %d: %w", p.PID, err)
	}
	if !p.awaitExit(30 * time.Second) {
		return fmt.Errorf("process %d does not end, even when killed", p.PID)
	}
	return nil
}

func (p process) awaitExit(within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !p.alive() {
			return true
		}
	}
	return !p.alive()
}

// processes lists all of the machine for which belongs says yes, given their folder in /proc.
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
		if p, err := identify(pid); err == nil && p.alive() { // else it ended meanwhile
			list = append(list, p)
		}
	}
	return list, nil
}

// marked tells whether a process carries the mark of a cluster: one of its components, or a shim of its containerd.
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

// contained tells whether the root of a process is in one of the cluster's containers: its file system is an overlay whose layers lie
// below the cluster's folder. Containers inherit no mark, but nobody else has such a root.
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
