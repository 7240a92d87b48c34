package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seamark-dev/seamark/test/controlplane"
)

const helperEnv = "SEAMARK_HARNESS_HELPER"

// helper is what this test binary does when a test runs it as another process, which is then killed
// or fails. It prints the folder of its control plane first.
func helper(m *testing.M, what string) {
	if what == "harness" {
		return // to Main, as in every package; the test to run is on the command line
	}
	binary, err := kube()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "seamark-helper-")
	if err != nil {
		panic(err)
	}
	cp, err := controlplane.Start(context.Background(), binary, controlplane.Options{Name: what, Dir: dir})
	if err != nil {
		panic(err)
	}
	if what == "paused" {
		if err := cp.Pause(); err != nil {
			panic(err)
		}
	}
	fmt.Println(dir)
	switch what {
	case "panic":
		panic("as the test wants it")
	case "timeout": // the clock of -test.timeout starts here
		os.Exit(m.Run())
	default: // until a signal comes
		select {}
	}
}

// TestHelperHangs is run by the tests below in another process, which they interrupt.
func TestHelperHangs(t *testing.T) {
	what := os.Getenv(helperEnv)
	if what == "" {
		return // not the other process
	}
	if what == "harness" {
		fmt.Println(Fresh(t, 1)[0].Dir())
		fmt.Println(Clusters(t, 1)[0].Dir())
	}
	select {}
}

// TestHelperFails is run by TestLogsOfAFailedTestAreKept in another process, where it fails.
func TestHelperFails(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		return
	}
	Fresh(t, 1)
	Clusters(t, 1)
	t.Run("passes", func(t *testing.T) { Clusters(t, 1) })
	t.Error("as the test wants it")
}

func TestNoProcessOutlivesTheTestBinary(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		signal os.Signal
	}{
		"panic":       {},
		"timeout":     {args: []string{"-test.run=^TestHelperHangs$", "-test.timeout=100ms"}},
		"killed":      {signal: syscall.SIGKILL},
		"interrupted": {signal: os.Interrupt},
		"paused":      {signal: syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, dirs := startHelper(t, name, 1, tc.args...)
			if tc.signal != nil {
				if n := len(processesOf(t, dirs[0])); n != 2 {
					t.Errorf("%d processes run, want etcd and API server", n)
				}
				if err := other.Process.Signal(tc.signal); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Wait(); err == nil {
				t.Error("the other process succeeded")
			}
			Eventually(t, "no process is left", func() error {
				if left := processesOf(t, dirs[0]); len(left) > 0 {
					return fmt.Errorf("processes %v still run", left)
				}
				return nil
			})
			if err := os.RemoveAll(dirs[0]); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASignalStopsAndCleansUp(t *testing.T) {
	other, dirs := startHelper(t, "harness", 2, "-test.run=^TestHelperHangs$", "-test.v")
	if err := other.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := other.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("the other process ended with %v, want 130", err)
	}
	for _, dir := range dirs {
		// Without waiting: the handler stops everything before it exits.
		if left := processesOf(t, dir); len(left) > 0 {
			t.Errorf("processes %v still run", left)
		}
		if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state in %s was not removed: %v", filepath.Dir(dir), err)
		}
	}
}

func TestTheStateOfAKilledTestBinaryIsRemovedByTheNext(t *testing.T) {
	parent := t.TempDir()
	killed, err := newStateDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	running, err := newStateDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.lock.Close(); err != nil { // as the kernel does for a process that is killed
		t.Fatal(err)
	}
	next, err := newStateDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the killed test binary was not removed: %v", err)
	}
	for _, s := range []*stateDir{running, next} {
		if _, err := os.Stat(s.path); err != nil {
			t.Errorf("the folder of a running test binary was removed: %v", err)
		}
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestLogsOfAFailedTestAreKept(t *testing.T) {
	logs := t.TempDir()
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperFails$", "-test.v")
	other.Env = append(os.Environ(), helperEnv+"=harness", LogsEnv+"="+logs)
	out, err := other.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("as the test wants it")) {
		t.Fatalf("the other process did not fail as it should: %v\n%s", err, out)
	}
	kept := filepath.Join(logs, "test", "harness", "TestHelperFails")
	if want := "logs of the control planes are kept in " + kept; !bytes.Contains(out, []byte(want)) {
		t.Errorf("the output lacks %q:\n%s", want, out)
	}
	for _, log := range []string{"logs-fresh1/etcd.log", "logs-fresh1/kube-apiserver.log", "shared-c1/kube-apiserver.log"} {
		if _, err := os.Stat(filepath.Join(kept, log)); err != nil {
			t.Error(err)
		}
	}
	others, err := filepath.Glob(filepath.Join(filepath.Dir(kept), "*"))
	if err != nil || len(others) != 1 {
		t.Errorf("kept more than the logs of the test: %v, %v", others, err)
	}
	if _, err := os.Stat(filepath.Join(kept, "passes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the logs of a subtest that passed are kept: %v", err)
	}
}

func TestEmptyLogFoldersAreRemoved(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv(LogsEnv, "")
	removeLogs := func() {
		t.Helper()
		dir, err := sharedLogDir()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(makeLogDir(dir), removeSharedLogs()); err != nil {
			t.Fatal(err)
		}
	}
	removeLogs()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v, %v", left, err)
	}

	root, err := logRoot()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(root, "another-package", "TestThatFailed")
	if err := makeLogDir(other); err != nil {
		t.Fatal(err)
	}
	removeLogs()
	if left, err := filepath.Glob(filepath.Join(root, "*", "*")); err != nil || len(left) != 1 || left[0] != other {
		t.Errorf("left are %v, %v, want the logs of another package", left, err)
	}

	chosen := t.TempDir()
	t.Setenv(LogsEnv, chosen)
	removeLogs()
	if left, err := os.ReadDir(chosen); err != nil || len(left) > 0 {
		t.Errorf("left in the folder that %s names: %v, %v", LogsEnv, left, err)
	}
}

// startHelper runs this test binary again and returns when it has printed n folders of control
// planes.
func startHelper(t *testing.T, what string, n int, args ...string) (*exec.Cmd, []string) {
	t.Helper()
	other := exec.CommandContext(t.Context(), os.Args[0], args...)
	other.Env = append(os.Environ(), helperEnv+"="+what, LogsEnv+"="+t.TempDir())
	var stderr bytes.Buffer
	other.Stderr = &stderr
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for lines := bufio.NewScanner(stdout); len(dirs) < n && lines.Scan(); {
		if filepath.IsAbs(lines.Text()) {
			dirs = append(dirs, lines.Text())
		}
	}
	if len(dirs) < n {
		t.Fatalf("the other process started %d of %d control planes: %v\n%s", len(dirs), n, other.Wait(), &stderr)
	}
	return other, dirs
}

// processesOf returns the running processes that have a folder in their command line.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range paths {
		line, err := os.ReadFile(path) // empty for a zombie; an error when it just ended
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
