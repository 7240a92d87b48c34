// Package harness gives tests real Kubernetes control planes. Reconcilers are tested against these, never against a fake
// client: a fake accepts what an API server refuses.
//
// A package that uses it has one TestMain:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// and its tests ask for what they need: Clusters for control planes that all tests of the package share, isolated by
// Namespace; Fresh for those a test wants to stop, pause or cut off. The programs come from the cache of package
// kubeparts and are built when missing, which takes longer than the default timeout of `go test`: run
// `go run ./build/parts kube` first. Nothing is ever skipped.
//
// No process outlives the test binary, however that ends. Logs of the control planes a failed test used stay in
// seamark-test-logs-…/<package>/<test>/ in the folder for temporary files, or below $SEAMARK_TEST_LOGS.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
)

// pool is the control planes of this test binary.
type pool struct {
	mu      sync.Mutex
	ready   bool // Main runs
	state   *stateDir
	shared  []*sharedPlane
	running map[*controlplane.ControlPlane]struct{}
}

// slot is one shared control plane, started by whoever asks first.
type sharedPlane struct {
	start func() (*controlplane.ControlPlane, error)
}

var controlPlanes = &pool{running: map[*controlplane.ControlPlane]struct{}{}}

// kube finds the binary once per test binary; building is shared with other test binaries by a lock.
var kube = sync.OnceValues(func() (string, error) {
	return kubeparts.Kube(context.Background(), os.Stderr)
})

// Main runs the tests of a package, then stops every control plane and exits with the tests' code. On Ctrl-C and SIGTERM
// it stops them too and exits with 130 or 143. A panic, a timeout or SIGKILL leave no time for that; then the kernel ends the
// processes and the next run removes their files.
func Main(m *testing.M) {
	// What controllers log goes to stderr, which `go test` shows when a test fails. A logger set before stays.
	ctrllog.SetLogger(klog.Background())
	controlPlanes.mu.Lock()
	controlPlanes.ready = true
	controlPlanes.mu.Unlock()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		got := (<-signals).(syscall.Signal)
		fmt.Fprintf(os.Stderr, "harness: %s: stopping all control planes\n", got)
		// Stopping in good order waits for whoever is starting or stopping right now. When that takes too long, exiting
		// is enough: the kernel ends the processes.
		done := make(chan error, 1)
		go func() { done <- controlPlanes.close() }()
		select {
		case err := <-done:
			if err != nil {
				fmt.Fprintln(os.Stderr, "harness:", err)
			}
		case <-time.After(10 * time.Second):
		}
		os.Exit(128 + int(got))
	}()
	code := m.Run()
	if err := controlPlanes.close(); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Clusters returns n control planes without controller-manager that all tests of the package share. They are started by the first
// test that asks, in parallel; a later test that asks for more gets the same and new ones. Share them politely: work in a
// Namespace, and leave stopping, pausing and cutting to Fresh. Fails the test when they do not start.
func Clusters(t testing.TB, n int) []*controlplane.ControlPlane {
	t.Helper()
	slots := controlPlanes.sharedPlanes(t, n)
	cps := make([]*controlplane.ControlPlane, n)
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i, s := range slots {
		starting.Go(func() { cps[i], errs[i] = s.start() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("starting the shared control planes: %v", err)
	}
	keepSharedLogs(t, cps)
	return cps
}

// Dir is a folder for what the tests of the package share, such as a binary they build. It goes when the test binary ends.
func Dir(t testing.TB) string {
	t.Helper()
	state, err := controlPlanes.stateDir()
	if err != nil {
		t.Fatalf("making a folder for the tests: %v", err)
	}
	return state.path
}

// Fresh starts n control planes in parallel that belong to this test alone and are stopped at its end. Each mutate may
// change the options, for example WithControllerManager. Fails the test when they do not start.
func Fresh(t testing.TB, n int, mutate ...func(*controlplane.Options)) []*controlplane.ControlPlane {
	t.Helper()
	logs, first := reserveLogDir(t, n)
	state, err := controlPlanes.stateDir()
	if err != nil {
		t.Fatalf("making a folder for control planes: %v", err)
	}
	cps := make([]*controlplane.ControlPlane, n)
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() {
			name := fmt.Sprintf("fresh%d", first+i)
			cps[i], errs[i] = controlPlanes.start(state, filepath.Join(logs, "logs-"+name), name, mutate)
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for _, cp := range cps {
			if cp != nil {
				controlPlanes.stopFresh(t, cp)
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("starting control planes for this test: %v", err)
	}
	return cps
}

// WithControllerManager makes Fresh start a kube-controller-manager too, for tests that need namespaces to empty, garbage to
// be collected or EndpointSlices to follow Pods.
func WithControllerManager(o *controlplane.Options) { o.ControllerManager = true }

// slots returns the first n slots, with new ones at the end where they are missing.
func (p *pool) sharedPlanes(t testing.TB, n int) []*sharedPlane {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		t.Fatal("the package shares control planes but nothing would stop them: " +
			"add func TestMain(m *testing.M) { harness.Main(m) }")
	}
	for len(p.shared) < n {
		name := fmt.Sprintf("c%d", len(p.shared)+1)
		p.shared = append(p.shared, &sharedPlane{start: sync.OnceValues(func() (*controlplane.ControlPlane, error) {
			return p.startShared(name)
		})})
	}
	return p.shared[:n:n]
}

func (p *pool) startShared(name string) (*controlplane.ControlPlane, error) {
	state, err := p.stateDir()
	if err != nil {
		return nil, err
	}
	logs, err := sharedLogDir()
	if err != nil {
		return nil, err
	}
	return p.start(state, filepath.Join(logs, name), name, nil)
}

func (p *pool) start(state *stateDir, logs, name string, mutate []func(*controlplane.Options)) (*controlplane.ControlPlane, error) {
	binary, err := kube()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(state.path, name+"-")
	if err != nil {
		return nil, err
	}
	if err := makeLogDir(logs); err != nil {
		return nil, err
	}
	// Tests wait for the CPU of API servers more than for anything else; of memory there is enough for their garbage.
	const gcPercent = 400
	o := controlplane.Options{Name: name, Dir: dir, LogDir: logs, GCPercent: gcPercent}
	for _, change := range mutate {
		change(&o)
	}
	cp, err := controlplane.Start(context.Background(), binary, o)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[cp] = struct{}{}
	return cp, nil
}

// endFresh stops a test's own control plane and removes its state, which would otherwise fill the disk over a long run.
func (p *pool) stopFresh(t testing.TB, cp *controlplane.ControlPlane) {
	p.mu.Lock()
	delete(p.running, cp)
	p.mu.Unlock()
	if err := errors.Join(cp.Stop(), os.RemoveAll(cp.Dir())); err != nil {
		t.Errorf("stopping control plane %s: %v", cp.Name(), err)
	}
}

// close stops everything that still runs and removes all state.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make(chan error, len(p.running))
	for cp := range p.running {
		go func() { errs <- cp.Stop() }()
	}
	var joined error
	for range p.running {
		joined = errors.Join(joined, <-errs)
	}
	clear(p.running)
	if p.state != nil {
		joined = errors.Join(joined, p.state.remove())
	}
	return errors.Join(joined, removeSharedLogs())
}

func (p *pool) stateDir() (*stateDir, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		state, err := newStateDir(os.TempDir())
		if err != nil {
			return nil, err
		}
		p.state = state
	}
	return p.state, nil
}
