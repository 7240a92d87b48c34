// Package harness gives the tests of a package real Kubernetes control planes: it starts, shares
// and removes them, keeps the logs of failed tests, and has Eventually and the like. It is the
// layer above package controlplane, which runs one control plane and has the faults a test can
// cause; package fleet adds members and agents. Reconcilers are tested against real API servers,
// never against a fake client, which accepts what an API server refuses.
//
// A package that uses it has one TestMain:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// Its tests call Clusters for control planes that all tests of the package share, isolated by
// Namespace, and Fresh for control planes of their own that they stop, pause or cut off. The
// programs come from the cache of package kubeparts. Missing ones are built, which takes longer
// than the default timeout of `go test`: run `go run ./build/parts kube` first. No test is ever
// skipped.
//
// No process outlives the test binary, in whatever way it ends. The logs of the control planes that
// a failed test used stay in seamark-test-logs-…/<package>/<test>/ in the folder for temporary
// files, or below $SEAMARK_TEST_LOGS.
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

// pool holds the control planes of this test binary.
type pool struct {
	mu      sync.Mutex
	ready   bool // Main was called
	state   *stateDir
	shared  []*sharedPlane
	running map[*controlplane.ControlPlane]struct{}
	ranges  int // how many ranges of ClusterIPs were given
}

// sharedPlane is one shared control plane, started by the first test that needs it.
type sharedPlane struct {
	start func() (*controlplane.ControlPlane, error)
}

var controlPlanes = &pool{running: map[*controlplane.ControlPlane]struct{}{}}

// kube returns the path of the `kube` binary. When it is missing, one test binary builds it and the
// others wait.
var kube = sync.OnceValues(func() (string, error) {
	return kubeparts.Kube(context.Background(), os.Stderr)
})

// Main runs the tests of a package, stops every control plane and exits with the tests' code. On
// Ctrl-C and SIGTERM it stops them too and exits with 130 or 143. After a panic, a timeout or
// SIGKILL the kernel kills the processes, and the next run removes their files.
func Main(m *testing.M) {
	// Controllers log to stderr, which `go test` shows when a test fails. A logger that was set before
	// stays.
	ctrllog.SetLogger(klog.Background())
	controlPlanes.mu.Lock()
	controlPlanes.ready = true
	controlPlanes.mu.Unlock()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		got := (<-signals).(syscall.Signal)
		fmt.Fprintf(os.Stderr, "harness: %s: stopping all control planes\n", got)
		// An orderly stop waits for control planes that are just starting or stopping. When that takes
		// too long, exit: the kernel kills the processes.
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

// Clusters returns n control planes without controller-manager that all tests of the package share.
// The first test that needs them starts them, in parallel; a later test that needs more gets the
// same and new ones. A test works in a Namespace there, and uses Fresh for control planes that it
// stops, pauses or cuts off. Clusters fails the test when they do not start.
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
		t.Fatalf("start the shared control planes: %v", err)
	}
	keepSharedLogs(t, cps)
	return cps
}

// Dir returns a folder for files that the tests of the package share, such as a binary they build.
// It is removed when the test binary ends.
func Dir(t testing.TB) string {
	t.Helper()
	state, err := controlPlanes.stateDir()
	if err != nil {
		t.Fatalf("create a folder for the tests: %v", err)
	}
	return state.path
}

// Fresh starts n control planes in parallel that only this test uses, and stops them at its end.
// Each mutate may change the options, for example WithControllerManager. Fresh fails the test when
// they do not start.
func Fresh(t testing.TB, n int, mutate ...func(*controlplane.Options)) []*controlplane.ControlPlane {
	t.Helper()
	logs, first := reserveLogDir(t, n)
	state, err := controlPlanes.stateDir()
	if err != nil {
		t.Fatalf("create a folder for control planes: %v", err)
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
		t.Fatalf("start control planes for this test: %v", err)
	}
	return cps
}

// WithControllerManager makes Fresh start a kube-controller-manager too, for tests that need
// namespace deletion, garbage collection or EndpointSlices of Pods.
func WithControllerManager(o *controlplane.Options) { o.ControllerManager = true }

// sharedPlanes returns the first n shared control planes and adds those that are missing. It does
// not start them.
func (p *pool) sharedPlanes(t testing.TB, n int) []*sharedPlane {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		t.Fatal("nothing would stop the shared control planes of this package: " +
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
	// Tests wait mostly for the CPU of API servers. Collect garbage less often; there is enough
	// memory.
	const gcPercent = 400
	o := controlplane.Options{Name: name, Dir: dir, LogDir: logs, GCPercent: gcPercent, ServiceCIDR: p.nextServiceCIDR(name)}
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

// nextServiceCIDR returns a range of ClusterIPs that no other control plane of these tests has: a
// member refuses endpoints in its own range. The first shared one has the default.
func (p *pool) nextServiceCIDR(name string) string {
	if name == "c1" {
		return controlplane.DefaultServiceCIDR
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranges = (p.ranges + 1) % 50
	return fmt.Sprintf("10.%d.0.0/16", 200+p.ranges)
}

// stopFresh stops a test's own control plane and removes its state, which would fill the disk in a
// long run.
func (p *pool) stopFresh(t testing.TB, cp *controlplane.ControlPlane) {
	p.mu.Lock()
	delete(p.running, cp)
	p.mu.Unlock()
	if err := errors.Join(cp.Stop(), os.RemoveAll(cp.Dir())); err != nil {
		t.Errorf("stop control plane %s: %v", cp.Name(), err)
	}
}

// close stops all control planes and removes their state.
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
