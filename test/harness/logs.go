package harness

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
)

// LogsEnv names the environment variable that moves the logs of failed tests away from the folder
// for temporary files.
const LogsEnv = "SEAMARK_TEST_LOGS"

// Logs are written to their final place and removed when the test passes. So they are kept also
// after a panic or a timeout, which run no cleanup.

func logRoot() (string, error) {
	if logs := os.Getenv(LogsEnv); logs != "" {
		return filepath.Abs(logs)
	}
	// Not in the repository: `go test` treats files there as inputs of a test, and does not cache the
	// result of a test that changes them.
	root, err := kubeparts.Root()
	sum := sha256.Sum256([]byte(root)) // two checkouts do not share a folder
	return filepath.Join(os.TempDir(), fmt.Sprintf("seamark-test-logs-%x", sum[:4])), err
}

// packageLogDir returns the folder of this test binary's logs. `go test` runs the binary in the
// folder of its package.
func packageLogDir() (string, error) {
	root, err := kubeparts.Root()
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	pkg, err := filepath.Rel(root, here)
	if err != nil {
		return "", err
	}
	logs, err := logRoot()
	return filepath.Join(logs, pkg), err
}

func testLogDir(t testing.TB) string {
	t.Helper()
	dir, err := packageLogDir()
	if err != nil {
		t.Fatalf("find the folder for logs: %v", err)
	}
	return filepath.Join(dir, filepath.FromSlash(strings.ReplaceAll(t.Name(), "..", "__")))
}

// activeLogDirs holds the log folders of the running tests, each with the number of control planes
// that log there.
var activeLogDirs = struct {
	sync.Mutex
	planes map[string]int
}{planes: map[string]int{}}

// reserveLogDir returns the folder of a test's logs and the number of the first of n more control
// planes that log there. The first call of a test removes the logs of an earlier run and registers
// the removal of the folder for when the test passes.
func reserveLogDir(t testing.TB, n int) (dir string, first int) {
	t.Helper()
	dir = testLogDir(t)
	activeLogDirs.Lock()
	defer activeLogDirs.Unlock()
	count, claimed := activeLogDirs.planes[dir]
	activeLogDirs.planes[dir] = count + n
	if claimed {
		return dir, count + 1
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatalf("remove the logs of an earlier run: %v", err)
	}
	t.Cleanup(func() {
		activeLogDirs.Lock()
		delete(activeLogDirs.planes, dir)
		activeLogDirs.Unlock()
		if t.Failed() {
			t.Logf("logs of the control planes are kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the logs of a passed test: %v", err)
		}
	})
	return dir, 1
}

// keepSharedLogs copies the logs of shared control planes to the folder of a test that failed with
// them, because the originals are removed at the end of the test binary.
func keepSharedLogs(t testing.TB, cps []*controlplane.ControlPlane) {
	t.Helper()
	reserveLogDir(t, 0)
	t.Cleanup(func() { // runs before the cleanup of reserveLogDir
		if !t.Failed() {
			return
		}
		for _, cp := range cps {
			to := filepath.Join(testLogDir(t), "shared-"+cp.Name())
			if err := copyFiles(to, cp.Logs()); err != nil {
				t.Logf("keep the logs of %s: %v", cp.Name(), err)
			}
		}
	})
}

func copyFiles(to string, paths []string) error {
	if err := makeLogDir(to); err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// sharedLogDir returns the folder for logs of the shared control planes. Its name has the process
// id, because two runs of the binary must not share it.
func sharedLogDir() (string, error) {
	dir, err := packageLogDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, fmt.Sprintf("shared-%d", os.Getpid())), nil
}

// removeSharedLogs removes the logs of the shared control planes, and the folders above them that
// are empty then.
func removeSharedLogs() error {
	dir, err := sharedLogDir()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	root, err := logRoot()
	if err != nil {
		return err
	}
	last := filepath.Dir(root)
	if os.Getenv(LogsEnv) != "" {
		last = root // the user chose this folder; it stays
	}
	for dir = filepath.Dir(dir); dir != last; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil // not empty: it holds the logs of a failed test or of another package
		}
	}
	return nil
}

// makeLogDir creates a folder. It retries when another test binary has just removed an empty
// parent.
func makeLogDir(dir string) error {
	var err error
	for range 10 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return err
}
