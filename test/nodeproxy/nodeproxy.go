// Package nodeproxy runs the real seamark-proxy, as a process, on a node of package netbed. It
// needs root.
package nodeproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	// The process is built from this package. With the import `go test` runs a test again when the
	// package changes.
	_ "github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

// NodeName is the name of the Node that the proxy runs on.
const NodeName = "node"

// readyURL is where the proxy reports, on its node, that the kernel is in sync.
const readyURL = "http://127.0.0.1:9442/readyz"

// Program is seamark-proxy, installed on a node as a client of one API server.
type Program struct {
	// Kubeconfig is the path of its kubeconfig. It goes through the relay of the control plane, so
	// CutOff separates the proxy from its API server.
	Kubeconfig string

	t      testing.TB
	node   *netbed.Node
	binary string
}

// Install builds seamark-proxy and makes the API server of a control plane reachable on the node,
// until the test ends. It fails the test when the build fails.
func Install(t testing.TB, node *netbed.Node, cp *controlplane.ControlPlane) *Program {
	t.Helper()
	relay, err := node.Relay(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.Close() })
	// The proxy runs as an unprivileged user, who must be able to read both files.
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &Program{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), t: t, node: node, binary: filepath.Join(dir, "seamark-proxy"),
	}
	p.build()
	text, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Kubeconfig, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Program) build() {
	p.t.Helper()
	root, err := kubeparts.Root()
	if err != nil {
		p.t.Fatal(err)
	}
	// The file is not compiled into the test. Reading it makes `go test` run the test again when it
	// changes.
	if _, err := os.ReadFile(filepath.Join(root, "cmd", "seamark-proxy", "main.go")); err != nil {
		p.t.Fatalf("find the source of seamark-proxy: %v", err)
	}
	build := exec.CommandContext(p.t.Context(), "go", "build", "-o", p.binary, "github.com/seamark-dev/seamark/cmd/seamark-proxy")
	if out, err := build.CombinedOutput(); err != nil {
		p.t.Fatalf("build seamark-proxy: %v\n%s", err, out)
	}
}

// Process is a running seamark-proxy.
type Process struct {
	// Exited is closed when the process has ended.
	Exited <-chan struct{}

	t   testing.TB
	cmd *exec.Cmd
}

// Start runs the proxy on the node as an unprivileged user, with CAP_NET_ADMIN and no other
// capability. The process is killed at the end of the test; the log of a failed test has its log.
func (p *Program) Start(args ...string) *Process {
	p.t.Helper()
	const capNetAdmin = 12
	return p.start([]uintptr{capNetAdmin}, args)
}

// StartWithoutCapabilities is Start, but the kernel refuses all that the process wants to do with
// rules and tracked connections.
func (p *Program) StartWithoutCapabilities(args ...string) *Process {
	p.t.Helper()
	return p.start(nil, args)
}

func (p *Program) start(capabilities []uintptr, args []string) *Process {
	p.t.Helper()
	log, err := os.CreateTemp(p.t.TempDir(), "log")
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	process := &Process{t: p.t}
	process.cmd = exec.Command(p.binary, append([]string{"--kubeconfig", p.Kubeconfig, "--node-name", NodeName}, args...)...)
	process.cmd.Stdout, process.cmd.Stderr = log, log
	const unprivileged = 65534
	process.cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}, AmbientCaps: capabilities,
	}
	if process.Exited, err = p.node.Start(process.cmd); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = process.cmd.Process.Kill()
		<-process.Exited
		if text, err := os.ReadFile(log.Name()); p.t.Failed() && err == nil {
			p.t.Logf("log of seamark-proxy:\n%s", text)
		}
	})
	return process
}

// StartReady is Start and WaitReady.
func (p *Program) StartReady(args ...string) *Process {
	p.t.Helper()
	process := p.Start(args...)
	p.WaitReady()
	return process
}

// WaitReady waits until the proxy on the node is ready.
func (p *Program) WaitReady() {
	p.t.Helper()
	harness.Eventually(p.t, "the proxy is ready", func() error {
		_, err := p.node.Get(readyURL)
		return err
	})
}

// SignalAndWait sends a signal and waits until the process has ended.
func (p *Process) SignalAndWait(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatalf("send %s to the proxy: %v", signal, err)
	}
	select {
	case <-p.Exited:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the proxy does not end after %s", signal)
	}
}
