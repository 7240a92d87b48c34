// Package promserver runs a Prometheus server for a test. The program is that of Debian;
// test/monitoring/fetch.sh finds or downloads it.
package promserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
)

// Server is a running Prometheus.
type Server struct {
	// URL of the server, on loopback.
	URL string

	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Start runs a server with this configuration. Its data, configuration and log are in dir, which
// must exist. Start returns when the server is ready, or with an error that has the end of the
// server's log if it exits before that. The server ends with Stop or with this process, however
// that ends.
func Start(ctx context.Context, dir, config string) (*Server, error) {
	program, err := find(ctx)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + address, log: filepath.Join(dir, "prometheus.log"), done: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	s.cmd = exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := controlplane.StartChild(s.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		_ = s.cmd.Wait() // its log says why it ended
		close(s.done)
	}()
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop kills the server. Its data is not needed any more.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill() // it may have exited
	<-s.done
}

// ready waits until the server accepts queries.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/-/ready", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close() // only the status is used
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.done:
			return fmt.Errorf("the Prometheus server exited; the last lines of its log:\n%s", s.tail())
		case <-ctx.Done():
			return fmt.Errorf("the Prometheus server is not ready at %s: %w; the last lines of its log:\n%s", s.URL, ctx.Err(), s.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail returns the last lines of the log.
func (s *Server) tail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(len(all)-8, 0):], "\n")
}

// find returns the path of the program, and downloads it first if it is not installed.
func find(ctx context.Context) (string, error) {
	root, err := kubeparts.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "test", "monitoring", "fetch.sh"), "prometheus")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find or fetch Prometheus: %w\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(path)), nil
}

// freeAddress returns a loopback address that is not in use now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for Prometheus: %w", err)
	}
	return l.Addr().String(), l.Close()
}
