// Package fleet gives tests and benchmarks a clusterset on control planes that already run: it
// deploys a broker, joins members by invitation and runs their agents, in this process or as
// processes of their own. It is the layer above package harness, which starts the control planes of
// tests.
package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/daemon/logs"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

// Fleet is a broker and the members of its clusterset.
type Fleet struct {
	Broker *controlplane.ControlPlane
	// Admin is a client of the broker with an admin's rights.
	Admin   client.Client
	Members []*Member
}

// Member is a cluster of the clusterset, with its agent.
type Member struct {
	ID     string
	CP     *controlplane.ControlPlane
	Client client.Client
	// Agent holds the options with which its agent is started.
	Agent agent.Options

	kubeconfig string

	mu      sync.Mutex
	stop    func()
	process *exec.Cmd
}

// Options of a fleet.
type Options struct {
	// IDs of the members; one per control plane. "east", "west", "north", … when empty.
	IDs []string
	// AllowedNamespaces by member id.
	AllowedNamespaces map[string][]string
	// DataPlanes and Blocks (of clusterset IPs) by member id.
	DataPlanes map[string]v1alpha1.DataPlane
	Blocks     map[string][]netip.Prefix
	// EnableClusterSetIP is the default of the clusterset; enabled when nil.
	EnableClusterSetIP *bool
	// RenewEvery and LeaseDuration of all members; one and five seconds when zero, so that tests of
	// stale members are quick.
	RenewEvery, LeaseDuration time.Duration
	// Direct connects without the relays, for benchmarks: CutOff has no effect then.
	Direct bool
}

var defaultIDs = []string{"east", "west", "north", "south", "centre", "up", "down"}

// New deploys a broker on host and joins every one of cps. It does not start agents.
func New(ctx context.Context, host *controlplane.ControlPlane, cps []*controlplane.ControlPlane, o Options) (*Fleet, error) {
	admin, err := brokeradmin.NewClient(configOf(host, o))
	if err != nil {
		return nil, err
	}
	f := &Fleet{Broker: host, Admin: admin}
	if _, err := brokeradmin.Deploy(ctx, admin, brokeradmin.DeployOptions{EnableClusterSetIP: o.EnableClusterSetIP}); err != nil {
		return nil, fmt.Errorf("deploy the broker: %w", err)
	}
	for i, cp := range cps {
		id := defaultIDs[i%len(defaultIDs)]
		if len(o.IDs) > 0 {
			id = o.IDs[i]
		}
		m, err := f.Join(ctx, cp, id, o)
		if err != nil {
			return nil, fmt.Errorf("join %s: %w", id, err)
		}
		f.Members = append(f.Members, m)
	}
	return f, nil
}

// Join joins one more control plane. It does not start the agent and does not add the member to
// Members.
func (f *Fleet) Join(ctx context.Context, cp *controlplane.ControlPlane, id string, o Options) (*Member, error) {
	local, err := brokeradmin.NewClient(configOf(cp, o))
	if err != nil {
		return nil, err
	}
	cfg := configOf(f.Broker, o)
	invited, err := brokeradmin.Invite(ctx, f.Admin, id, brokeradmin.InviteOptions{
		Server: cfg.Host, CAData: cfg.CAData, AllowedNamespaces: o.AllowedNamespaces[id], Blocks: o.Blocks[id],
	})
	if err != nil {
		return nil, err
	}
	join := brokeradmin.JoinOptions{ClusterID: id, DataPlane: o.DataPlanes[id]}
	if _, err := brokeradmin.Join(ctx, local, invited.Membership, join); err != nil {
		return nil, err
	}
	return Joined(cp, id, o)
}

// Joined returns the member of a control plane that has joined. It does not start the agent.
func Joined(cp *controlplane.ControlPlane, id string, o Options) (*Member, error) {
	local, err := brokeradmin.NewClient(configOf(cp, o))
	if err != nil {
		return nil, err
	}
	renew, lease := o.RenewEvery, o.LeaseDuration
	if renew == 0 {
		renew, lease = time.Second, 5*time.Second
	}
	kubeconfig := cp.Kubeconfig()
	if o.Direct {
		kubeconfig = cp.DirectKubeconfig()
	}
	return &Member{ID: id, CP: cp, Client: local, kubeconfig: kubeconfig, Agent: agent.Options{
		Options: daemon.Options{Local: configOf(cp, o), MetricsAddress: "0", ProbeAddress: "0"}, RenewEvery: renew, LeaseDuration: lease,
	}}, nil
}

func configOf(cp *controlplane.ControlPlane, o Options) *rest.Config {
	if o.Direct {
		return cp.DirectConfig()
	}
	return cp.Config()
}

// Start starts the agents of all members in this process.
func (f *Fleet) Start() error {
	for _, m := range f.Members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops all agents and waits for them.
func (f *Fleet) Stop() {
	for _, m := range f.Members {
		m.Stop()
	}
}

// Start starts this member's agent in this process; Stop stops it.
func (m *Member) Start() error {
	log, err := m.openLog()
	if err != nil {
		return err
	}
	options := m.Agent
	lines := logs.New(log, slog.LevelInfo)
	options.Log, options.OnClusterID = logr.FromSlogHandler(lines), lines.SetCluster
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = log.Close() }()
		if err := agent.Run(ctx, options); err != nil {
			options.Log.Error(err, "the agent ended")
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = func() { cancel(); <-done }
	return nil
}

// Stop stops the agent and waits until it has ended. Stopping a stopped agent does nothing.
func (m *Member) Stop() {
	m.mu.Lock()
	stop, process := m.stop, m.process
	m.stop, m.process = nil, nil
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	if process != nil {
		_ = process.Process.Signal(syscall.SIGTERM)
		_ = process.Wait()
	}
}

// StartProcess builds the agent and starts it as a process of its own. It is killed at the end of
// the test.
func (m *Member) StartProcess(t testing.TB, args ...string) {
	t.Helper()
	if err := m.StartBinary(AgentBinary(t), args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
}

// StartBinary starts a built agent as a process of its own. It runs until Stop, Kill or the end of
// this process.
func (m *Member) StartBinary(path string, args ...string) error {
	cmd := exec.Command(path, append([]string{
		"--kubeconfig", m.kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--renew-every", m.Agent.RenewEvery.String(), "--lease-duration", m.Agent.LeaseDuration.String(),
	}, args...)...)
	log, err := m.openLog()
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	cmd.Stdout, cmd.Stderr = log, log
	if err := controlplane.StartChild(cmd); err != nil {
		return fmt.Errorf("start the agent of %s: %w", m.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = cmd
	return nil
}

// Replica returns another replica of the member's agent, with the same options. It is not started.
func (m *Member) Replica() *Member {
	return &Member{ID: m.ID, CP: m.CP, Client: m.Client, Agent: m.Agent, kubeconfig: m.kubeconfig}
}

// PID returns the process id of an agent started with StartProcess.
func (m *Member) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process.Process.Pid
}

// Kill kills an agent process.
func (m *Member) Kill() {
	m.mu.Lock()
	process := m.process
	m.process = nil
	m.mu.Unlock()
	if process != nil {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
}

var (
	agentOnce sync.Once
	agentPath string
	agentErr  error
)

// AgentBinary builds seamark-agent once per test binary and returns its path.
func AgentBinary(t testing.TB) string {
	t.Helper()
	agentOnce.Do(func() { agentPath, agentErr = Build(harness.Dir(t), "seamark-agent") })
	if agentErr != nil {
		t.Fatal(agentErr)
	}
	return agentPath
}

// Build builds a program of ours, such as seamark-agent, into dir with the flags of a release, and
// returns its path.
func Build(dir, program string) (string, error) {
	// The file is not compiled into the test. Reading it makes `go test` run the test again when it
	// changes.
	root, err := kubeparts.Root()
	if err != nil {
		return "", err
	}
	if _, err := os.ReadFile(filepath.Join(root, "cmd", program, "main.go")); err != nil {
		return "", fmt.Errorf("find the source of %s: %w", program, err)
	}
	path := filepath.Join(dir, program)
	build := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/seamark-dev/seamark/cmd/"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, nil
}

// Log returns what the member's agents have logged so far.
func (m *Member) Log() (string, error) {
	text, err := os.ReadFile(m.logPath())
	return string(text), err
}

// logPath returns the file of the log of the member's agent: beside those of its control plane, or
// in the folder that SEAMARK_AGENT_LOGS names.
func (m *Member) logPath() string {
	dir := os.Getenv("SEAMARK_AGENT_LOGS")
	if dir == "" {
		dir = filepath.Dir(m.CP.Logs()[0])
	}
	return filepath.Join(dir, "agent-"+m.ID+".log")
}

func (m *Member) openLog() (*os.File, error) {
	log, err := os.OpenFile(m.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of the agent of %s: %w", m.ID, err)
	}
	return log, nil
}
