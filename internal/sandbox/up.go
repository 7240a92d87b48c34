//go:build linux

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// Options describe a sandbox. Every field has a default.
type Options struct {
	// Name is the name of the sandbox on its machine.
	Name string
	// Clusters is the number of clusters, 1 to 8.
	Clusters int
	// DataPlane is the data plane of all members.
	DataPlane v1alpha1.DataPlane
	// Family is the IP family of nodes, pods and services.
	Family Family
	// Bare creates the clusters without broker and Seamark.
	Bare bool
	// Seamark runs the seamark command with these arguments. Without it the clusters are bare.
	Seamark func(ctx context.Context, args ...string) error
	// Progress gets a line for each step; nil for no progress.
	Progress io.Writer
}

func (o *Options) complete() error {
	o.Name = cmp.Or(o.Name, DefaultName)
	o.Clusters = cmp.Or(o.Clusters, DefaultClusters)
	o.Family = cmp.Or(o.Family, IPv4)
	if o.Clusters < 1 || o.Clusters > maxClusters {
		return fmt.Errorf("a sandbox has 1 to %d clusters, not %d", maxClusters, o.Clusters)
	}
	switch o.Family {
	case IPv4, IPv6, Dual:
	default:
		return fmt.Errorf("there is no IP family %q: choose %s, %s or %s", o.Family, IPv4, IPv6, Dual)
	}
	plane, err := objects.ParseDataPlane(string(o.DataPlane))
	o.DataPlane = plane.Name
	return err
}

// Up creates a sandbox or repairs one that exists. On a running sandbox it only checks, which takes
// seconds. After processes were killed or the machine was restarted, it starts them again with the
// objects they had. It returns when the nodes of all clusters are ready, cluster DNS answers and
// Seamark is installed.
//
// It needs root and a checkout of the repository, and builds what is not in its caches, which takes
// minutes the first time. When a component fails, the error has the end of its log. What was
// started keeps running, so that it can be inspected, until Down or another Up.
func Up(ctx context.Context, o Options) (*Sandbox, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := errors.Join(needRoot(), ensureGo(goInstaller)); err != nil {
		return nil, err
	}
	r := newReport(o.Progress)
	unlock, err := lock(ctx, o.Name, func() { r.printf("waiting for another command on sandbox %s to finish", o.Name) })
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := openOrCreate(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.up(ctx, r, o); err != nil {
		return nil, fmt.Errorf("sandbox %s is not complete (run seamark sandbox up again to continue, or down to remove it): %w", o.Name, err)
	}
	return s, nil
}

// openOrCreate returns the sandbox that exists, which must have the same options, or reserves a
// name, a slot and a bridge for a new one.
func openOrCreate(ctx context.Context, o Options) (*Sandbox, error) {
	existing, err := Open(o.Name)
	if err == nil {
		st := existing.state
		if st.Clusters != o.Clusters || st.Family != o.Family || st.DataPlane != o.DataPlane {
			return nil, fmt.Errorf("sandbox %s exists with --clusters %d --ip-family %s --dataplane %s: "+
				"remove it first, or choose another name with --name", o.Name, st.Clusters, st.Family, st.DataPlane)
		}
		return existing, existing.claimName()
	}
	if !errors.Is(err, ErrNone) {
		return nil, err
	}
	dir, err := dirOf(o.Name)
	if err != nil {
		return nil, err
	}
	var s *Sandbox
	err = withMachineLock(ctx, func() error {
		slot, err := unusedSlot(filepath.Dir(dir))
		if err != nil {
			return err
		}
		s = newSandbox(o.Name, dir, state{Slot: slot, Clusters: o.Clusters, Family: o.Family, DataPlane: o.DataPlane})
		for _, step := range []func() error{s.claimName, s.save} {
			if err := step(); err != nil {
				return err
			}
		}
		_, err = s.plan.ensureBridge() // shows other commands that the slot is taken
		return err
	})
	return s, err
}

// unusedSlot returns the first slot that is not used by a sandbox that runs or has its state below
// base.
func unusedSlot(base string) (int, error) {
	others, err := bridgesOf(base)
	if err != nil {
		return 0, err
	}
	return freeSlot(func(link string) bool {
		_, err := os.Stat(filepath.Join("/sys/class/net", link))
		return err == nil || others[link]
	})
}

// bridgesOf returns the bridges of all sandboxes with their state below base, also of those that do
// not run since the machine was restarted.
func bridgesOf(base string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(base, "*", stateFile))
	if err != nil {
		return nil, err
	}
	links := map[string]bool{}
	for _, file := range files {
		if other, err := Open(filepath.Base(filepath.Dir(file))); err == nil { // otherwise it is not a sandbox
			links[other.plan.bridge()] = true
		}
	}
	return links, nil
}

func (s *Sandbox) up(ctx context.Context, r *report, o Options) error {
	if err := ensurePackages(ctx, r); err != nil {
		return err
	}
	var bin binaries
	var built images
	for _, step := range []struct {
		label string
		do    func() error
	}{
		{"Kubernetes, containerd and CNI plugins are built", func() error {
			err := bin.find(ctx, r)
			s.state.NodeParts, s.state.Kube = bin.node, bin.kube
			return err
		}},
		{"images are built from this checkout", func() (err error) { built, err = s.buildImages(ctx); return err }},
		{"network is set up", func() error { return s.setUpNetwork(ctx) }},
	} {
		if err := r.step(step.label, step.do); err != nil {
			return err
		}
	}
	if err := s.startAll(ctx, r, bin, built); err != nil {
		return err
	}
	if err := s.plan.writeMergedKubeconfig(); err != nil {
		return err
	}
	if o.Bare || o.Seamark == nil {
		return nil
	}
	return s.install(ctx, r, o.Seamark)
}

// setUpNetwork creates the network and restores its faults, which a restart of the machine removes.
// What was stopped in a cluster will be started, so those faults end.
func (s *Sandbox) setUpNetwork(ctx context.Context) error {
	loadModules()
	if err := saveTunables(); err != nil {
		return err
	}
	if err := s.plan.connect(); err != nil {
		return err
	}
	s.state.Faults = slices.DeleteFunc(s.state.Faults, func(f fault.Fault) bool { return !f.OfNetwork() })
	if err := s.save(); err != nil {
		return err
	}
	return s.applyNetworkFaults(ctx)
}

func (p *binaries) find(ctx context.Context, progress io.Writer) (err error) {
	if p.kube, err = kubeparts.Kube(ctx, progress); err != nil {
		return err
	}
	p.node, err = kubeparts.Node(ctx, progress)
	return err
}

// startAll starts the clusters in parallel.
func (s *Sandbox) startAll(ctx context.Context, r *report, bin binaries, built images) error {
	return s.forEach(ctx, func(ctx context.Context, c cluster) error { return s.startCluster(ctx, r, c, bin, built) })
}

// forEach calls do for all clusters in parallel. The first error cancels the others and is
// returned.
func (s *Sandbox) forEach(ctx context.Context, do func(context.Context, cluster) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, c := range s.plan.clusters {
		wg.Go(func() {
			if err := do(ctx, c); err != nil {
				cancel(err) // only the first call has an effect
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (s *Sandbox) startCluster(ctx context.Context, r *report, c cluster, bin binaries, built images) error {
	if err := s.plan.writeNodeFiles(c, bin, built.workload.name); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	if err := c.ensureCertificates(); err != nil {
		return fmt.Errorf("cluster %s: create certificates: %w", c.name, err)
	}
	start := func(names ...string) error {
		for _, name := range names {
			if err := c.start(c.component(name, bin, s.plan)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, step := range []struct {
		label string
		do    func() error
	}{
		// containerd needs no API server. It starts early to be ready for the images.
		{"API server is ready", func() error {
			if err := start(containerd, etcd, apiserver); err != nil {
				return err
			}
			return c.awaitAPIServer(ctx)
		}},
		{"images are loaded", func() error { return c.loadImages(ctx, bin, built.daemons, built.workload) }},
		{"node is ready", func() error {
			if err := c.awaitContainerd(ctx); err != nil {
				return err
			}
			if err := start(controllerManager, scheduler, kubelet, kubeProxy); err != nil {
				return err
			}
			return c.awaitNode(ctx)
		}},
		{"cluster DNS answers", func() error { return c.ensureDNS(ctx, built.daemons) }},
	} {
		if err := r.step(c.name+": "+step.label, step.do); err != nil {
			return err
		}
	}
	return nil
}
