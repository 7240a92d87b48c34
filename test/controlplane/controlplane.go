// Package controlplane runs one real Kubernetes control plane as child processes of this one: etcd and API server, and
// the controller-manager on request, on loopback ports. Tests use it in place of fakes, the sandbox to build clusters on.
//
// Three things set it apart from starting the programs by hand. No child outlives this process, however it ends. Clients
// reach the API server through a relay in this process that can be cut, as a network can. And the state can be stopped,
// paused, saved and put back, so that outages are things a test does, not things it imagines.
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

// startTimeout bounds a start, generously: it must hold on a machine that is busy compiling.
const startTimeout = 3 * time.Minute

// Options describe a control plane. Only Dir is required.
type Options struct {
	// Name shows in errors and is the context of the kubeconfig; "controlplane" when empty.
	Name string
	// Dir holds certificates, etcd's data, the kubeconfig and, without LogDir, the logs. A folder that an earlier control
	// plane left is taken up again with its objects.
	Dir string
	// LogDir takes the log files instead of the folder `logs` in Dir.
	LogDir string
	// ControllerManager starts kube-controller-manager too. Without it nothing deletes a namespace's content, collects
	// garbage, fills EndpointSlices or creates default service accounts (Pods are admitted without one).
	ControllerManager bool
	// ServiceCIDR is the range of ClusterIPs; two, separated by a comma, make the cluster dual-stack.
	ServiceCIDR string
	// APIServerArgs are added after our own flags of kube-apiserver, so they win.
	APIServerArgs []string
	// GCPercent is GOGC of all components: more saves CPU and takes memory. 0 leaves it as it is.
	GCPercent int
}

// ControlPlane is a running (or stopped) control plane. Its methods may be called from any goroutine; those that start,
// stop or save run one at a time.
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

// Start runs a control plane with the given `kube` binary and returns when its API server says it is ready (and, with a
// controller-manager, when that has created the first service account). The processes live until Stop or the end of this
// process; ctx bounds only the start. It fails, with the last lines of the log to blame, when a process ends or is not
// ready within three minutes; nothing is left running then.
func Start(ctx context.Context, kube string, o Options) (*ControlPlane, error) {
	c, err := prepare(kube, o)
	if err != nil {
		return nil, fmt.Errorf("preparing control plane %q: %w", o.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	const attempts = 8
	for attempt := 1; ; attempt++ {
		if c.ports, err = freePorts(); err != nil {
			return nil, fmt.Errorf("starting control plane %q: %w", c.options.Name, err)
		}
		err = c.start(ctx)
		if err == nil {
			return c, nil
		}
		err = errors.Join(err, c.stop())
		// Between choosing a port and listening on it somebody else may take it; then other ports will do.
		if !errors.Is(err, errPortTaken) || attempt == attempts {
			return nil, err
		}
	}
}

func prepare(kube string, o Options) (*ControlPlane, error) {
	if o.Dir == "" {
		return nil, errors.New("Options.Dir is empty: name a folder for its state")
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
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	return &ControlPlane{kube: kube, options: o, pki: keys, files: f}, nil
}

// apiServiceIPs are the addresses under which pods know the API server: the first of each service range.
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

// Stop ends all processes and waits until they are gone. Clients are refused from then on; the state in Dir stays, and
// Restart takes it up. Stopping a stopped control plane does nothing. It fails when a process cannot be killed.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop()
}

// Restart stops what runs and starts it again with the same ports and the same state, so that every rest.Config and
// kubeconfig handed out stays valid. It fails as Start does; the control plane is stopped then.
func (c *ControlPlane) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restart(ctx, nil)
}

// StopAPIServer ends the API server alone, at once and without farewell, as a crash does: etcd and the controller-manager go on.
func (c *ControlPlane) StopAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopAPIServer()
}

// StartAPIServer starts the API server that StopAPIServer ended and waits until it is ready. It fails as Start does, and
// when the control plane is stopped; with an API server already running it does nothing.
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

// Dir returns the folder of its state.
func (c *ControlPlane) Dir() string { return c.options.Dir }

// Logs returns the paths of the log files, oldest component first. They grow while the processes run and survive Stop.
func (c *ControlPlane) Logs() []string {
	logs := []string{c.logPath(etcdName), c.logPath(apiserverName)}
	if c.options.ControllerManager {
		logs = append(logs, c.logPath(managerName))
	}
	return logs
}

func (c *ControlPlane) logPath(component string) string {
	return filepath.Join(c.options.LogDir, component+".log")
}
