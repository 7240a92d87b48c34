package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/shipped"
)

// server is one of the compared servers. All run behind the same plugins: the chart's Corefile,
// with answers instead of the plugin clusterset. In answers, %s is the kubeconfig.
type server struct{ name, binary, answers string }

// servers are compared in this order; the first is the ceiling.
var servers = []server{
	{"constant", "constant", "constant\n"},
	{"seamark", "seamark-dns", ""},
	{"in-tree", "seamark-dns", "kubernetes clusterset.local {\n        kubeconfig %s\n        multicluster clusterset.local\n    }\n"},
}

// corefile returns the Corefile of a server.
func (b *testbed) corefile(k server, port int) (string, error) {
	text, err := shipped.Corefile(nil)
	if err != nil {
		return "", err
	}
	var free [3]string
	for i := range free {
		n, err := freePort()
		if err != nil {
			return "", err
		}
		free[i] = fmt.Sprintf("127.0.0.1:%d", n)
	}
	text, err = shipped.Adapt(text, shipped.Outside{Kubeconfig: b.plane.Kubeconfig(), Port: strconv.Itoa(port),
		Metrics: free[0], Health: free[1], Ready: free[2]})
	if err != nil || k.answers == "" {
		return text, err
	}
	answers := k.answers
	if strings.Contains(answers, "%s") {
		answers = fmt.Sprintf(answers, b.plane.Kubeconfig())
	}
	before, rest, _ := strings.Cut(text, "    clusterset ")
	_, after, _ := strings.Cut(rest, "    }\n")
	return before + "    " + answers + after, nil
}

// process is a running server.
type process struct {
	server  server
	cmd     *exec.Cmd
	port    int
	started time.Time
}

// startServer runs a server on the first core, with additions to its environment.
func (b *testbed) startServer(k server, env ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	text, err := b.corefile(k, port)
	if err != nil {
		return nil, err
	}
	return b.run(k, port, text, env...)
}

// run runs a server with a Corefile on the first core.
func (b *testbed) run(k server, port int, text string, env ...string) (*process, error) {
	path := b.corefilePath(k)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("taskset", "-c", "0", filepath.Join(b.dir, k.binary), "-conf", path, "-quiet")
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), env...)
	p := &process{server: k, cmd: cmd, port: port, started: time.Now()}
	if err := controlplane.StartChild(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", k.name, err)
	}
	return p, nil
}

func (b *testbed) corefilePath(k server) string { return filepath.Join(b.dir, "Corefile-"+k.name) }

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// freePort returns a port that is free for TCP and UDP at the moment.
func freePort() (int, error) {
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		err = errors.Join(err, l.Close())
		if err == nil {
			return port, u.Close()
		}
	}
	return 0, errors.New("no port is free for both TCP and UDP")
}

func (p *process) query(name string) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	c := &dns.Client{Timeout: 500 * time.Millisecond}
	reply, _, err := c.Exchange(m, fmt.Sprintf("127.0.0.1:%d", p.port))
	return reply, err
}

// answerable waits until every service is answered and returns how long that took from the start,
// and how many names were denied before. A denial is an error of the server.
func (p *process) answerable(ctx context.Context, services int) (took time.Duration, denied int, err error) {
	denied, err = p.await(ctx, services, zone)
	return time.Since(p.started), denied, err
}

// answered waits until every service is answered in a zone.
func (p *process) answered(ctx context.Context, services int, suffix string) error {
	_, err := p.await(ctx, services, suffix)
	return err
}

func (p *process) await(ctx context.Context, services int, suffix string) (denied int, err error) {
	for i := 0; i < services; {
		if ctx.Err() != nil || time.Since(p.started) > 2*time.Minute {
			return denied, fmt.Errorf("%s: not all names are answered after %s", p.server.name, time.Since(p.started).Round(time.Second))
		}
		reply, err := p.query(serviceName(i) + "." + suffix)
		switch {
		case err == nil && len(reply.Answer) == 1:
			i++
			continue
		case err == nil && reply.Rcode == dns.RcodeNameError:
			denied++
		}
		time.Sleep(5 * time.Millisecond)
	}
	return denied, nil
}

// loadResult is the result of one run of dnsperf.
type loadResult struct {
	perSecond float64
	cpu       time.Duration // of the server, per query
	latencies []time.Duration
}

// load sends queries for random services. With a limit, it sends at that rate and records
// latencies.
func (b *testbed) load(ctx context.Context, p *process, queries string, d time.Duration, limit int) (loadResult, error) {
	core := strconv.Itoa(min(1, runtime.NumCPU()-1))
	args := []string{"-c", core, "dnsperf", "-s", "127.0.0.1", "-p", strconv.Itoa(p.port), "-d", queries, "-l",
		strconv.Itoa(int(d.Seconds())), "-c", "4", "-q", "100"}
	if limit > 0 {
		args = append(args, "-v", "-Q", strconv.Itoa(limit))
	}
	before := usageOf(p.cmd.Process.Pid)
	out, err := exec.CommandContext(ctx, "taskset", args...).Output()
	if err != nil {
		return loadResult{}, fmt.Errorf("dnsperf on %s: %w", p.server.name, err)
	}
	after := usageOf(p.cmd.Process.Pid)
	return parsePerf(string(out), after.cpu-before.cpu)
}

// parsePerf parses dnsperf's report and, with -v, the line of each query: "> NOERROR name A
// 0.000123".
func parsePerf(text string, cpu time.Duration) (loadResult, error) {
	var l loadResult
	var completed float64
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "> ") && len(fields) == 5:
			if s, err := strconv.ParseFloat(fields[4], 64); err == nil {
				l.latencies = append(l.latencies, time.Duration(s*float64(time.Second)))
			}
		case strings.Contains(line, "Queries completed:"):
			completed, _ = strconv.ParseFloat(fields[2], 64)
		case strings.Contains(line, "Queries per second:"):
			l.perSecond, _ = strconv.ParseFloat(fields[3], 64)
		case strings.Contains(line, "Response codes:") && !strings.Contains(line, "(100.00%)"):
			return l, fmt.Errorf("dnsperf got more than one response code: %s", strings.TrimSpace(line))
		}
	}
	if completed == 0 || l.perSecond == 0 {
		return l, fmt.Errorf("dnsperf's report cannot be read: %q", text)
	}
	l.cpu = time.Duration(float64(cpu) / completed)
	return l, nil
}
