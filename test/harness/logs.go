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

// Logs are written where they are kept, and removed when the test passes: so they are there also
// when the test binary dies of a panic or a timeout, which runs no clean-up.

func logRoot() (string, error) {
	if logs := os.Getenv(LogsEnv); logs != "" {
		return filepath.Abs(logs)
	}
	// Not below the repository: `go test` takes files there for inputs of a test, and one that changes
	// them is never cached.
	root, err := kubeparts.Root()
	sum := sha256.Sum256([]byte(root)) // two checkouts do not share a folder
	return filepath.Join(os.TempDir(), fmt.Sprintf("seamark-test-logs-%x", sum[:4])), err
}

// packageLogDir is the folder of this test binary's logs: `go test` runs it in the folder of its
// package.
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
		t.Fatalf("finding a place for logs: %v", err)
	}
	return filepath.Join(dir, filepath.FromSlash(strings.ReplaceAll(t.Name(), "..", "__")))
}

// claims are the log folders of the tests that run now, each with the number of control planes that
// log there.
var activeLogDirs = struct {
	sync.Mutex
	planes map[string]int
}{planes: map[string]int{}}

// claimLogs makes the folder of a test's logs ready, once per run of the test, and registers its
// removal for when the test passes. It returns the folder and the number of the first of n control
// planes that will log there.
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
	if err := os.RemoveAll(dir); err != nil { // of an earlier run
		t.Fatalf("removing old logs: %v", err)
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
			t.Errorf("removing the logs of a passed test: %v", err)
		}
	})
	return dir, 1
}

// keepSharedLogs copies the logs of shared control planes to those of a test that failed with them:
// the originals go on growing and vanish with the test binary.
func keepSharedLogs(t testing.TB, cps []*controlplane.ControlPlane) {
	t.Helper()
	reserveLogDir(t, 0)
	t.Cleanup(func() { // runs before the clean-up of claimLogs
		if !t.Failed() {
			return
		}
		for _, cp := range cps {
			to := filepath.Join(testLogDir(t), "shared-"+cp.Name())
			if err := copyFiles(to, cp.Logs()); err != nil {
				t.Logf("keeping the logs of %s: %v", cp.Name(), err)
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

// sharedLogDir is where the shared control planes of this test binary log; the process id keeps two
// runs apart.
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
		return fmt.Errorf("removing logs: %w", err)
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

// makeLogDir creates a folder, trying again when another test binary just removed a parent that was
// empty.
func makeLogDir(dir string) error {
	var err error
	for range 10 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return err
}
