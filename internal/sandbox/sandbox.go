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
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// DirEnv names the environment variable that moves the state of sandboxes away from DefaultDir.
	DirEnv = "SEAMARK_SANDBOX_DIR"
	// DefaultDir holds a folder for each sandbox.
	DefaultDir = "/var/lib/seamark-sandbox"
	// DefaultName is the name of a sandbox whose user chose none.
	DefaultName = "default"
	// DefaultClusters is how many clusters there are unless somebody says.
	DefaultClusters = 3

	// runRoot holds what does not survive a restart of the machine. It is one for the machine, so that no two sandboxes have one name.
	runRoot = "/run/seamark-sandbox"

	stateFile = "sandbox.json"
)

// ErrNone is wrapped when there is no sandbox of the name.
var ErrNone = errors.New("there is no such sandbox")

// state is what a sandbox is, on disk.
type state struct {
	Slot      int                `json:"slot"`
	Clusters  int                `json:"clusters"`
	Family    Family             `json:"ipFamily"`
	DataPlane v1alpha1.DataPlane `json:"dataPlane"`
	// Image is the daemons' image that was loaded last, Pause that of pod sandboxes and test workloads.
	Image         string `json:"image"`
	WorkloadImage string `json:"workloadImage"`
	// NodeParts is the folder of the containerd that runs, and its tools: other commands need no checkout to find them.
	NodeParts string `json:"nodeParts"`
	// Partitions are pairs of clusters that do not hear each other.
	Partitions []Pair `json:"partitions,omitempty"`
}

// Pair is two clusters, in alphabetical order.
type Pair [2]string

func newPair(a, b string) Pair {
	if a > b {
		a, b = b, a
	}
	return Pair{a, b}
}

// Sandbox is one that exists, running or not.
type Sandbox struct {
	plan  plan
	state state
}

// Open finds the sandbox of a name. It fails with ErrNone when there is none, with advice when the user is not root, and when its state
// cannot be read.
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
		return nil, fmt.Errorf("%w: %s (in %s); make one with seamark sandbox up", ErrNone, name, filepath.Dir(dir))
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

// readState reads the state of a sandbox, or the copy beside its sockets: somebody may have removed the folder under running clusters, and
// they still have to be found.
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

// save writes the state. It is the first thing of a sandbox and the last to go, so that there is always something to take down.
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

// dirOf is the folder of a sandbox.
func dirOf(name string) (string, error) {
	if !sandboxName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a sandbox: use up to 12 lower-case letters, digits and dashes", name)
	}
	base := os.Getenv(DirEnv)
	if base == "" {
		base = DefaultDir
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", DirEnv, err)
	}
	return filepath.Join(base, name), nil
}

func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a sandbox is made of network namespaces, links and mounts, which only root may make: run this again as root (sudo)")
}

// lock keeps commands for one sandbox apart: the second waits for the first. The lock ends with the process.
func lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	var held *os.File
	announced := false
	err = poll(ctx, func() (bool, error) {
		if err := os.MkdirAll(runRoot, 0o755); err != nil {
			return false, err
		}
		held, err = tryLock(lockFile(name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // the last sandbox took the folder with it just now
		}
		if held == nil && err == nil && !announced {
			announced = true
			waiting()
		}
		return held != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("locking sandbox %s: %w", name, err)
	}
	return func() { _ = held.Close() }, nil
}

// machineLock is the name of no sandbox.
const machineLock = "_machine"

// forMachine does what concerns all sandboxes of the machine while no other command does.
func withMachineLock(ctx context.Context, do func() error) error {
	unlock, err := lock(ctx, machineLock, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(do(), os.Remove(lockFile(machineLock)))
}

func lockFile(name string) string { return filepath.Join(runRoot, name+".lock") }

// tryLock returns nil when somebody else has the lock. The file goes with the sandbox, so one that was removed meanwhile locks nothing.
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

// claim makes the name of the sandbox its own on this machine.
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
		return fmt.Errorf("a sandbox %s exists already on this machine, with its state in %s: take it down (with %s=%s), or choose another with --name",
			s.plan.name, text, DirEnv, filepath.Dir(string(text)))
	}
	return nil
}

// Name is the sandbox's.
func (s *Sandbox) Name() string { return s.plan.name }

// Clusters are the names of the clusters, which are also the contexts of the kubeconfig. The first holds the broker.
func (s *Sandbox) Clusters() []string { return s.plan.names() }

// Kubeconfig is the path of a file with an admin's access to every cluster, readable by root alone.
func (s *Sandbox) Kubeconfig() string { return s.plan.mergedKubeconfig() }

// Image is the name of the daemons' image that was loaded last; a pod that runs it chooses its program by name.
func (s *Sandbox) Image() string { return s.state.Image }

// WorkloadImage is the name of the image that tests run in pods (test/e2e/workload).
func (s *Sandbox) WorkloadImage() string { return s.state.WorkloadImage }

// Server is the address of a cluster's API server, which the host and the pods of every cluster reach.
func (s *Sandbox) Server(name string) (string, error) {
	c, err := s.plan.find(name)
	if err != nil {
		return "", err
	}
	return c.server(), nil
}

// freeSlot is the first slot whose bridge does not exist.
func freeSlot(exists func(link string) bool) (int, error) {
	for slot := range maxSlots {
		if !exists(plan{slot: slot}.bridge()) {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("%d sandboxes run on this machine already: take one down first", maxSlots)
}

func (st state) partitioned(pair Pair) bool { return slices.Contains(st.Partitions, pair) }
