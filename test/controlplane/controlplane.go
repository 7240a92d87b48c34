// Package controlplane runs one real Kubernetes control plane for tests and benchmarks: etcd, API
// server and, on request, controller-manager, as child processes on loopback ports. It is the
// lowest of three layers. Package harness starts, shares and removes control planes for the tests
// of a package; package fleet makes them members of a clusterset and runs their agents. The
// clusters of `seamark sandbox`, which run pods, are in internal/sandbox and do not use it.
//
// No child outlives this process, in whatever way it ends. Clients reach the API server through a
// relay in this process that can be cut like a network. A control plane can be stopped, paused,
// saved and restored, so tests cause real outages.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// DefaultServiceCIDR is the range of ClusterIPs when Options names none.
const DefaultServiceCIDR = "10.96.0.0/16"

// startTimeout is long, because it must be enough on a machine that is busy compiling.
const startTimeout = 3 * time.Minute

// Options describe a control plane. Only Dir is required.
type Options struct {
	// Name is in errors and is the context of the kubeconfig; "controlplane" when empty.
	Name string
	// Dir holds certificates, etcd's data, the kubeconfig and, without LogDir, the logs. A control
	// plane in the folder of an earlier one has its objects.
	Dir string
	// LogDir holds the log files; the folder `logs` in Dir when empty.
	LogDir string
	// ControllerManager starts kube-controller-manager too. Without it nothing deletes a namespace's
	// content, collects garbage, fills EndpointSlices or creates default service accounts (Pods are
	// admitted without one).
	ControllerManager bool
	// ServiceCIDR is the range of ClusterIPs; two, separated by a comma, make the cluster dual-stack.
	ServiceCIDR string
	// APIServerArgs are flags of kube-apiserver that are added after the package's own, so they win.
	APIServerArgs []string
	// GCPercent is GOGC of all components: a higher value saves CPU and costs memory. 0 is Go's
	// default.
	GCPercent int
}

// ControlPlane is a running (or stopped) control plane. Its methods may be called from any
// goroutine; those that start, stop or save run one at a time.
type ControlPlane struct {
	kube    string
	options Options
	pki     *credentials
	files   files

	mu        sync.Mutex // held while processes are started, stopped or signalled
	ports     ports
	etcd      *child
	apiserver *child
	manager   *child
	relay     *relay
}

// Start runs a control plane with the given `kube` binary and returns when its API server is ready
// (and, with a controller-manager, when that has created the first service account). The processes
// run until Stop or the end of this process; ctx limits only the start. Start fails, with the last
// lines of the component's log, when a process ends or is not ready within three minutes. It leaves
// nothing running then.
func Start(ctx context.Context, kube string, o Options) (*ControlPlane, error) {
	c, err := prepare(kube, o)
	if err != nil {
		return nil, fmt.Errorf("prepare control plane %q: %w", o.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	const attempts = 8
	for attempt := 1; ; attempt++ {
		if c.ports, err = freePorts(); err != nil {
			return nil, fmt.Errorf("start control plane %q: %w", c.options.Name, err)
		}
		err = c.start(ctx)
		if err == nil {
			return c, nil
		}
		err = errors.Join(err, c.stop())
		// Another process may take a port after it was chosen. Try again with other ports.
		if !errors.Is(err, errPortTaken) || attempt == attempts {
			return nil, err
		}
	}
}

func prepare(kube string, o Options) (*ControlPlane, error) {
	if o.Dir == "" {
		return nil, errors.New("Options.Dir is empty: set it to a folder for the state")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if o.Name == "" {
		o.Name = "controlplane"
	}
	if o.LogDir == "" {
		o.LogDir = filepath.Join(dir, "logs")
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = DefaultServiceCIDR
	}
	serviceIPs, err := apiServiceIPs(o.ServiceCIDR)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{dir, o.LogDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	f := filesIn(dir)
	keys, err := loadOrCreatePKI(f, serviceIPs)
	if err != nil {
		return nil, fmt.Errorf("create certificates: %w", err)
	}
	return &ControlPlane{kube: kube, options: o, pki: keys, files: f}, nil
}

// apiServiceIPs returns the addresses of the `kubernetes` Service: the first of each service range.
func apiServiceIPs(cidrs string) ([]netip.Addr, error) {
	var ips []netip.Addr
	for cidr := range strings.SplitSeq(cidrs, ",") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("service range %q is not a CIDR such as %s: %w", cidr, DefaultServiceCIDR, err)
		}
		ips = append(ips, prefix.Masked().Addr().Next())
	}
	return ips, nil
}

// Stop stops all processes and waits until they have ended. New connections are refused from then
// on. The state stays in Dir, and Restart uses it. Stopping a stopped control plane does nothing.
// Stop fails when a process cannot be killed.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop()
}

// Restart stops all processes and starts them again with the same ports and the same state, so
// every rest.Config and kubeconfig stays valid. It fails as Start does; the control plane is
// stopped then.
func (c *ControlPlane) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restart(ctx, nil)
}

// StopAPIServer kills only the API server, as a crash does: etcd and the controller-manager keep
// running.
func (c *ControlPlane) StopAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopAPIServer()
}

// StartAPIServer starts the API server again after StopAPIServer and waits until it is ready. It
// does nothing when the API server runs. It fails as Start does, and when the control plane is
// stopped.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etcd == nil {
		return fmt.Errorf("control plane %q is stopped: use Restart", c.options.Name)
	}
	if c.apiserver != nil {
		return nil
	}
	return c.startOnFixedPorts(ctx, c.startAPIServer, c.stopAPIServer)
}

// Name returns the name of the control plane, which is also the context of its kubeconfig.
func (c *ControlPlane) Name() string { return c.options.Name }

// Dir returns the folder of the control plane's state.
func (c *ControlPlane) Dir() string { return c.options.Dir }

// Logs returns the paths of the log files, in the order in which the components start. Stop leaves
// them.
func (c *ControlPlane) Logs() []string {
	logs := []string{c.logPath(etcdName), c.logPath(apiserverName)}
	if c.options.ControllerManager {
		logs = append(logs, c.logPath(managerName))
	}
	return logs
}

// PIDs returns the ids of the processes that run, by component: "etcd", "kube-apiserver" and
// "kube-controller-manager". They change with each restart.
func (c *ControlPlane) PIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for _, p := range []*child{c.etcd, c.apiserver, c.manager} {
		if p != nil {
			pids[p.name] = p.cmd.Process.Pid
		}
	}
	return pids
}

func (c *ControlPlane) logPath(component string) string {
	return filepath.Join(c.options.LogDir, component+".log")
}
