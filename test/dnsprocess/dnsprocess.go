// Package dnsprocess runs a DNS server as a child of a test binary. CoreDNS's plugin `kubernetes`
// sets loggers of the whole process, and a server that reloads its Corefile by itself needs a
// process of its own, too.
package dnsprocess

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seamark-dev/seamark/internal/dns/server"
	"github.com/seamark-dev/seamark/test/controlplane"
)

// envRun makes a process that calls RunIfChild a DNS server.
const envRun = "SEAMARK_TEST_BE_COREDNS"

// RunIfChild runs the server and does not return if this process was started by Start. Call it
// first in TestMain.
func RunIfChild() {
	if os.Getenv(envRun) != "" {
		server.Run()
		os.Exit(0)
	}
}

// Start runs a server with a Corefile for a free port of the loopback interface, until the test
// ends. It has the plugins of seamark-dns. It returns its address and the path of the Corefile, and
// does not wait until the server answers.
func Start(t testing.TB, corefile func(port string) string) (address, path string) {
	t.Helper()
	address = FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	path = filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(corefile(port)), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-conf", path, "-quiet")
	cmd.Env = append(os.Environ(), envRun+"=1")
	if err := controlplane.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return address, path
}

// FreeAddress returns an address of the loopback interface whose port is free at the moment.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	return l.Addr().String()
}
