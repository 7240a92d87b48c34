// Command demo shows the main job on this machine: three real Kubernetes control planes become a clusterset, a service is
// exported from two of them and appears in the third, a cluster falls silent and comes back, a conflict is made and told. It
// runs the same commands a user types, and prints them. There are no pods yet, so endpoints are written by hand.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seamark-dev/seamark/internal/controlplane"
	"github.com/seamark-dev/seamark/internal/kubeparts"
)

var clusters = []string{"east", "west", "north"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{ctx: ctx, started: time.Now(), agents: map[string]*exec.Cmd{}}
	err := d.run()
	d.cleanUp()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	ctx     context.Context
	started time.Time
	dir     string
	kube    string
	planes  []*controlplane.ControlPlane
	agents  map[string]*exec.Cmd
}

// run goes through the acts; the first one that fails ends it.
func (d *demo) run() error {
	for _, act := range []struct {
		title string
		play  func() error
	}{
		{"Build what is missing (Kubernetes takes ten minutes, the first time only)", d.build},
		{"Start three Kubernetes control planes: east, west, north", d.startPlanes},
		{"Make them a clusterset, with the broker on east", d.joinAll},
		{"Export the service shop/web from east and from west", d.exportWeb},
		{"Look at it in north, which has no such Service", d.lookFromNorth},
		{"West falls silent: its endpoints are dropped, east serves on", d.failover},
		{"Make a conflict: west changes its port", d.conflict},
		{"Who is there", d.list},
	} {
		fmt.Printf("\n== %s  [%s]\n", act.title, time.Since(d.started).Round(time.Second))
		if err := act.play(); err != nil {
			return err
		}
	}
	fmt.Print("\nDone. What to try next: README.md, `seamark --help`, and `make test`.\n")
	return nil
}

func (d *demo) build() (err error) {
	if d.dir, err = os.MkdirTemp("", "seamark-demo-"); err != nil {
		return err
	}
	if d.kube, err = kubeparts.Kube(d.ctx, os.Stdout); err != nil {
		return err
	}
	return d.command("go", "build", "-o", d.dir, "./cmd/...").Run()
}

func (d *demo) startPlanes() error {
	var wg sync.WaitGroup
	errs := make([]error, len(clusters))
	d.planes = make([]*controlplane.ControlPlane, len(clusters))
	for i, name := range clusters {
		wg.Go(func() {
			d.planes[i], errs[i] = controlplane.Start(d.ctx, d.kube, controlplane.Options{Name: name, Dir: filepath.Join(d.dir, name)})
		})
	}
	wg.Wait()
	var paths []string
	for i, cp := range d.planes {
		if errs[i] != nil {
			return errs[i]
		}
		paths = append(paths, cp.Kubeconfig())
	}
	if err := os.Setenv("KUBECONFIG", strings.Join(paths, ":")); err != nil {
		return err
	}
	return d.show("kubectl", "config", "get-contexts", "-o", "name")
}

func (d *demo) joinAll() error {
	if err := d.show("seamark", "--context", "east", "broker", "deploy"); err != nil {
		return err
	}
	for _, name := range clusters {
		if err := d.show("seamark", "--context", name, "join", "--no-install", "--broker-context", "east", "--clusterid", name); err != nil {
			return err
		}
		if err := d.startAgent(name); err != nil {
			return err
		}
	}
	return nil
}

// startAgent starts a cluster's agent with short leases, so that nobody has to wait long for the failover.
func (d *demo) startAgent(name string) error {
	log, err := os.OpenFile(filepath.Join(d.dir, name+"-agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	args := []string{"--context", name, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--renew-every=1s", "--lease-duration=4s"}
	fmt.Printf("$ seamark-agent %s &\n", strings.Join(args, " "))
	agent := d.command("seamark-agent", args...)
	agent.Stdout, agent.Stderr = log, log
	d.agents[name] = agent
	return controlplane.StartChild(agent)
}

func (d *demo) exportWeb() error {
	for i, name := range clusters {
		manifest := namespaceManifest
		if i < 2 {
			manifest += fmt.Sprintf(webManifest, i+1, i+1)
		}
		apply := d.command("kubectl", "--context", name, "apply", "-f", "-")
		apply.Stdin = strings.NewReader(manifest)
		if out, err := apply.CombinedOutput(); err != nil {
			return fmt.Errorf("apply to %s: %w\n%s", name, err, out)
		}
	}
	for _, name := range clusters[:2] {
		if err := d.show("seamark", "--context", name, "export", "service", "web", "-n", "shop", "--wait"); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) lookFromNorth() error {
	if err := d.until("both clusters' endpoints in north", "10.1.0.1", "10.2.0.1"); err != nil {
		return err
	}
	if err := d.show("kubectl", "--context", "north", "-n", "shop", "get", "serviceimports"); err != nil {
		return err
	}
	return d.show("kubectl", "--context", "north", "-n", "shop", "get", "endpointslices", "-L", "multicluster.kubernetes.io/source-cluster")
}

func (d *demo) failover() error {
	fmt.Println("(killing west's agent)")
	west := d.agents["west"]
	if err := west.Process.Kill(); err != nil {
		return err
	}
	_ = west.Wait()
	since := time.Now()
	if err := d.until("only east's endpoints in north", "10.1.0.1"); err != nil {
		return err
	}
	fmt.Printf("dropped %s after the agent died; its lease lasts 4s\n", time.Since(since).Round(100*time.Millisecond))
	if err := d.startAgent("west"); err != nil {
		return err
	}
	since = time.Now()
	if err := d.until("west's endpoints back in north", "10.1.0.1", "10.2.0.1"); err != nil {
		return err
	}
	fmt.Printf("back %s after the agent started again\n", time.Since(since).Round(100*time.Millisecond))
	return nil
}

func (d *demo) conflict() error {
	if err := d.show("kubectl", "--context", "west", "-n", "shop", "patch", "service", "web", "--type=json",
		"-p", `[{"op":"replace","path":"/spec/ports/0/port","value":8080}]`); err != nil {
		return err
	}
	if err := d.show("kubectl", "--context", "west", "-n", "shop", "wait", "--for=condition=Conflict", "--timeout=30s", "serviceexport/web"); err != nil {
		return err
	}
	return d.show("kubectl", "--context", "east", "-n", "shop", "get", "serviceexport", "web",
		"-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
}

func (d *demo) list() error { return d.show("seamark", "--context", "east", "cluster", "list") }

// until waits until north has exactly these addresses.
func (d *demo) until(what string, want ...string) error {
	ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
	defer cancel()
	got := ""
	for ctx.Err() == nil {
		out, _ := d.command("kubectl", "--context", "north", "-n", "shop", "get", "endpointslices",
			"-o", `jsonpath={range .items[*]}{.endpoints[*].addresses[*]}{" "}{end}`).Output()
		fields := strings.Fields(string(out))
		if got = strings.Join(fields, " "); len(fields) == len(want) && containsAll(fields, want) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s: not so after a minute, north has %q; see the agents' logs in %s", what, got, d.dir)
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !strings.Contains(" "+strings.Join(have, " ")+" ", " "+w+" ") {
			return false
		}
	}
	return true
}

// show prints a command as a user types it, runs it and prints what it says.
func (d *demo) show(name string, args ...string) error {
	fmt.Printf("$ %s %s\n", name, quoted(args))
	cmd := d.command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, quoted(args), err)
	}
	return nil
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, ` {}[]"*`) {
			out[i] = "'" + a + "'"
		}
	}
	return strings.Join(out, " ")
}

// command is one of ours, kubectl out of the Kubernetes that was built, or one of the system's.
func (d *demo) command(name string, args ...string) *exec.Cmd {
	if name == "kubectl" {
		return exec.CommandContext(d.ctx, d.kube, append([]string{"kubectl"}, args...)...)
	}
	if strings.HasPrefix(name, "seamark") {
		name = filepath.Join(d.dir, name)
	}
	return exec.CommandContext(d.ctx, name, args...)
}

// cleanUp leaves nothing behind.
func (d *demo) cleanUp() {
	for _, agent := range d.agents {
		if agent.Process != nil && agent.ProcessState == nil {
			_ = agent.Process.Signal(syscall.SIGTERM)
			_ = agent.Wait()
		}
	}
	for _, cp := range d.planes {
		if cp != nil {
			_ = cp.Stop()
		}
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

const namespaceManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`

const webManifest = `---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-%d
  namespace: shop
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: ["10.%d.0.1"], conditions: {ready: true}}]
`
