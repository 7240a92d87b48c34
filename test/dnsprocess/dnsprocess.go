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
	s := Run(t, corefile)
	return s.Address, s.Corefile
}

// Server is a running server. Corefile is the path of its file.
type Server struct {
	Address, Corefile string
	process           *exec.Cmd
}

// Run is Start for tests that kill the server.
func Run(t testing.TB, corefile func(port string) string) *Server {
	t.Helper()
	s := &Server{Address: FreeAddress(t), Corefile: filepath.Join(t.TempDir(), "Corefile")}
	_, port, _ := net.SplitHostPort(s.Address)
	if err := os.WriteFile(s.Corefile, []byte(corefile(port)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	t.Cleanup(func() {
		s.kill()
		if log, err := os.ReadFile(s.log()); t.Failed() && err == nil && len(log) > 0 {
			t.Logf("the DNS server at %s logged:\n%s", s.Address, log)
		}
	})
	return s
}

func (s *Server) log() string { return s.Corefile + ".log" }

// Restart kills the server and starts it again at the same address.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	cmd := exec.Command(self, "-conf", s.Corefile, "-quiet")
	cmd.Env = append(os.Environ(), envRun+"=1")
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor; nothing was written to this one
	cmd.Stdout, cmd.Stderr = log, log
	if err := controlplane.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	s.process = cmd
}

func (s *Server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	}
}

// FreeAddress returns an address of the loopback interface whose port is free at the moment, for
// TCP and for UDP: many processes of the tests send datagrams.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		datagrams, err := net.ListenPacket("udp", address)
		_ = l.Close()
		if err == nil {
			_ = datagrams.Close()
			return address
		}
	}
	t.Fatal("no port of the loopback interface is free for TCP and UDP")
	return ""
}
