//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
)

const (
	// DirEnv names the environment variable that moves the state of sandboxes away from DefaultDir.
	DirEnv = "SEAMARK_SANDBOX_DIR"
	// DefaultDir holds a folder for each sandbox.
	DefaultDir = "/var/lib/seamark-sandbox"
	// DefaultName is the name of a sandbox unless the user chooses one.
	DefaultName = "default"
	// DefaultClusters is the number of clusters unless the user chooses one.
	DefaultClusters = 3

	// runRoot holds what is lost with a restart of the machine. There is one for the machine, so that
	// no two sandboxes have the same name.
	runRoot = "/run/seamark-sandbox"

	stateFile = "sandbox.json"
)

// ErrNone is wrapped when there is no sandbox of the name.
var ErrNone = errors.New("there is no such sandbox")

// state is the state of a sandbox on disk.
type state struct {
	Slot      int                `json:"slot"`
	Clusters  int                `json:"clusters"`
	Family    Family             `json:"ipFamily"`
	DataPlane v1alpha1.DataPlane `json:"dataPlane"`
	// Image is the daemons' image that was loaded last, WorkloadImage that of pod sandboxes and tests.
	Image         string `json:"image"`
	WorkloadImage string `json:"workloadImage"`
	// NodeParts is the folder of containerd and its tools, Kube the binary with all components of
	// Kubernetes, for commands that run outside a checkout.
	NodeParts string `json:"nodeParts"`
	Kube      string `json:"kube"`
	// Faults are what the user broke.
	Faults []fault.Fault `json:"faults,omitempty"`
}

// Sandbox is a sandbox that exists, running or not.
type Sandbox struct {
	plan  plan
	state state
}

// Open returns the sandbox of a name. It fails with ErrNone when there is none, when the user is
// not root, and when its state cannot be read.
func Open(name string) (*Sandbox, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	dir, err := dirOf(name)
	if err != nil {
		return nil, err
	}
	text, err := readState(name, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s (in %s); create one with seamark sandbox up", ErrNone, name, filepath.Dir(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	var st state
	if err := json.Unmarshal(text, &st); err != nil {
		return nil, fmt.Errorf("sandbox %s: %s is damaged: remove it, and its copy in %s is used: %w",
			name, filepath.Join(dir, stateFile), filepath.Join(runRoot, name), err)
	}
	return newSandbox(name, dir, st), nil
}

// readState reads the state of a sandbox, or its copy in the folder of sockets: the user may have
// removed the other folder while the clusters run.
func readState(name, dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	runDir := filepath.Join(runRoot, name)
	if owner, ownerErr := os.ReadFile(filepath.Join(runDir, "owner")); ownerErr != nil || string(owner) != dir {
		return nil, err
	}
	return os.ReadFile(filepath.Join(runDir, stateFile))
}

func newSandbox(name, dir string, st state) *Sandbox {
	return &Sandbox{plan: newPlan(name, dir, filepath.Join(runRoot, name), st.Slot, st.Clusters, st.Family), state: st}
}

// save writes the state. It is written first and removed last, so that Down works on a sandbox that
// is incomplete.
func (s *Sandbox) save() error {
	text, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return err
	}
	for _, dir := range []string{s.plan.runDir, s.plan.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, stateFile), append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// dirOf returns the folder of a sandbox.
func dirOf(name string) (string, error) {
	if !sandboxName.MatchString(name) {
		return "", fmt.Errorf("%q is not a valid name of a sandbox: use up to 12 lower-case letters, digits and dashes", name)
	}
	base := os.Getenv(DirEnv)
	if base == "" {
		base = DefaultDir
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", DirEnv, err)
	}
	return filepath.Join(base, name), nil
}

func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a sandbox needs network namespaces, links and mounts, which only root may create: run the command again as root (sudo)")
}

// lock locks a sandbox for one command; others wait, and waiting is called once when this one does.
// The kernel releases the lock when the process ends.
func lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	var held *os.File
	announced := false
	err = poll(ctx, func() (bool, error) {
		if err := os.MkdirAll(runRoot, 0o755); err != nil {
			return false, err
		}
		held, err = tryLock(lockFile(name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // Down has just removed the folder with the last sandbox
		}
		if held == nil && err == nil && !announced {
			announced = true
			waiting()
		}
		return held != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("lock sandbox %s: %w", name, err)
	}
	return func() { _ = held.Close() }, nil
}

// machineLock is not a valid name of a sandbox.
const machineLock = "_machine"

// withMachineLock calls do, which changes what all sandboxes of the machine share, while no other
// command does.
func withMachineLock(ctx context.Context, do func() error) error {
	unlock, err := lock(ctx, machineLock, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(do(), os.Remove(lockFile(machineLock)))
}

func lockFile(name string) string { return filepath.Join(runRoot, name+".lock") }

// tryLock returns nil when another process has the lock. Down removes the file, so a lock counts
// only while the file is still at the path.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		locked, lockedErr := file.Stat()
		current, currentErr := os.Stat(path)
		if lockedErr == nil && currentErr == nil && os.SameFile(locked, current) {
			return file, nil
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, errors.Join(err, file.Close())
}

// claimName reserves the name of the sandbox on this machine.
func (s *Sandbox) claimName() error {
	if err := os.MkdirAll(s.plan.runDir, 0o700); err != nil {
		return err
	}
	owner := filepath.Join(s.plan.runDir, "owner")
	text, err := os.ReadFile(owner)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeFile(owner, []byte(s.plan.dir))
	case err != nil:
		return err
	case string(text) != s.plan.dir:
		return fmt.Errorf("sandbox %s already exists on this machine, with its state in %s: remove it (with %s=%s), "+
			"or choose another name with --name", s.plan.name, text, DirEnv, filepath.Dir(string(text)))
	}
	return nil
}

// Name returns the name of the sandbox.
func (s *Sandbox) Name() string { return s.plan.name }

// Clusters returns the names of the clusters, which are also the contexts of the kubeconfig. The
// first has the broker.
func (s *Sandbox) Clusters() []string { return s.plan.names() }

// Kubeconfig returns the path of a kubeconfig with an admin's context for every cluster, which only
// root can read.
func (s *Sandbox) Kubeconfig() string { return s.plan.mergedKubeconfig() }

// Image returns the name of the daemons' image that was loaded last. A pod chooses the program by
// its name.
func (s *Sandbox) Image() string { return s.state.Image }

// WorkloadImage returns the name of the image that tests run in pods (test/e2e/workload).
func (s *Sandbox) WorkloadImage() string { return s.state.WorkloadImage }

// Server returns the URL of a cluster's API server, which the host and the pods of every cluster
// reach.
func (s *Sandbox) Server(name string) (string, error) {
	c, err := s.plan.find(name)
	if err != nil {
		return "", err
	}
	return c.server(), nil
}

// freeSlot returns the first slot whose bridge does not exist.
func freeSlot(exists func(link string) bool) (int, error) {
	for slot := range maxSlots {
		if !exists(plan{slot: slot}.bridge()) {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("%d sandboxes exist on this machine already: remove one first", maxSlots)
}
