//go:build linux

// Command demo shows the main job on this machine: three real Kubernetes clusters become a clusterset, a service of two of them is used by
// name from a pod of the third, a cluster is cut off and comes back, a conflict is made and explained. It runs the same commands a user
// types, and prints them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

const (
	name    = "demo"
	service = "web.shop.svc.clusterset.local"
)

func main() {
	keep := flag.Bool("keep", false, "leave the clusters running at the end")
	dataPlane := flag.String("dataplane", string(v1alpha1.DataPlaneService), "how imported services are reached: service or nftables")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, v1alpha1.DataPlane(*dataPlane), *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays, and takes everything away at the end, however that comes about.
func run(ctx context.Context, dataPlane v1alpha1.DataPlane, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "seamark-demo-")
	if err != nil {
		return err
	}
	d := &demo{ctx: ctx, dir: dir, dataPlane: dataPlane, started: time.Now()}
	if !keep {
		defer func() {
			fmt.Println("\n== Take everything away")
			err = errors.Join(err, testenv.Down(context.Background(), name, os.Stdout), os.RemoveAll(dir))
		}()
	}
	if err := d.play(); err != nil {
		return err
	}
	fmt.Print("\nDone. What to try next:\n" +
		"  go run ./test/demo --keep            leaves the clusters running\n" +
		"  go run ./test/demo --dataplane nftables\n" +
		"  make build && bin/seamark sandbox up your own clusters to play with\n" +
		"  docs/                                how it works, and how to install it on yours\n")
	if keep {
		fmt.Printf("\nThe clusters are running. export KUBECONFIG=%s, and at the end: %s sandbox down --name %s\n", d.Kubeconfig(), d.CLI, name)
	}
	return nil
}

type demo struct {
	*testenv.Env
	ctx       context.Context
	dir       string
	dataPlane v1alpha1.DataPlane
	started   time.Time

	one, two, three string
}

// play goes through the acts; the first one that fails ends it.
func (d *demo) play() error {
	for _, act := range []struct {
		title string
		play  func() error
	}{
		{"Start three Kubernetes clusters and make them a clusterset (building Kubernetes takes ten minutes, the first time only)", d.start},
		{"Run a web server in two of them, and export it", d.export},
		{"Use it by name from a pod of the third, which has no such Service", d.use},
		{"Cut one of the serving clusters off", d.cut},
		{"Make a conflict, and have it explained", d.conflict},
	} {
		fmt.Printf("\n== %s  [%s]\n", act.title, time.Since(d.started).Round(time.Second))
		if err := act.play(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start() (err error) {
	d.Env, err = testenv.Up(d.ctx, d.dir, sandbox.Options{Name: name, DataPlane: d.dataPlane, Progress: os.Stdout})
	if err != nil {
		return err
	}
	names := d.Clusters()
	d.one, d.two, d.three = names[0], names[1], names[2]
	return d.seamark("--context", d.one, "cluster", "list")
}

func (d *demo) export() error {
	for _, cluster := range d.Clusters() {
		manifest := client
		if cluster != d.three {
			manifest += web
		}
		if err := d.Apply(d.ctx, cluster, manifest); err != nil {
			return err
		}
	}
	for _, cluster := range []string{d.one, d.two} {
		if err := d.RolledOut(d.ctx, cluster, "shop", "deployment/web"); err != nil {
			return err
		}
		if err := d.seamark("--context", cluster, "export", "service", "web", "-n", "shop", "--wait"); err != nil {
			return err
		}
	}
	_, err := d.Kubectl(d.ctx, d.three, "-n", "shop", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")
	return err
}

func (d *demo) use() error {
	if err := d.kubectl(d.three, "-n", "shop", "get", "serviceimports,services"); err != nil {
		return err
	}
	if err := d.until("both clusters answer", func() (bool, error) {
		tally, err := d.requests()
		return tally.Failed == 0 && len(tally.Clusters) == 2, err
	}); err != nil {
		return err
	}
	fmt.Printf("\nin a pod of %s: the address of %s\n", d.three, service)
	addresses, err := d.Lookup(d.ctx, d.three, "shop", "client", service, "A")
	if err != nil {
		return err
	}
	fmt.Println("  " + strings.Join(addresses, " "))
	return d.twenty()
}

// twenty sends twenty requests and shows who answered each.
func (d *demo) twenty() error {
	fmt.Printf("\nin a pod of %s: twenty requests to http://%s\n", d.three, service)
	tally, err := d.requests()
	if err != nil {
		return err
	}
	fmt.Println("  answered by " + strings.Join(tally.Answers, " "))
	table := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintln(table, "  CLUSTER\tANSWERS")
	for _, cluster := range d.Clusters() {
		fmt.Fprintf(table, "  %s\t%d\n", cluster, tally.Clusters[cluster])
	}
	fmt.Fprintf(table, "  failed\t%d\n", tally.Failed)
	return table.Flush()
}

func (d *demo) cut() error {
	fmt.Printf("$ seamark sandbox partition %s %s; seamark sandbox partition %s %s\n", d.two, d.one, d.two, d.three)
	if err := errors.Join(d.Partition(d.ctx, d.two, d.one), d.Partition(d.ctx, d.two, d.three)); err != nil {
		return err
	}
	since := time.Now()
	if err := d.until(d.two+" gets no more requests", func() (bool, error) {
		tally, err := d.requests()
		return tally.Failed == 0 && tally.Clusters[d.one] == 20, err
	}); err != nil {
		return err
	}
	fmt.Printf("%s after it was cut off, %s gets no more requests: its lease had 20 s to live\n", time.Since(since).Round(time.Second), d.two)
	if err := d.twenty(); err != nil {
		return err
	}
	if err := d.seamark("--context", d.one, "cluster", "list"); err != nil {
		return err
	}
	fmt.Println("$ seamark sandbox heal")
	if err := d.Heal(d.ctx); err != nil {
		return err
	}
	since = time.Now()
	if err := d.until(d.two+" serves again", func() (bool, error) {
		tally, err := d.requests()
		return tally.Failed == 0 && tally.Clusters[d.two] > 0, err
	}); err != nil {
		return err
	}
	fmt.Printf("%s after the network healed, %s serves again\n", time.Since(since).Round(time.Second), d.two)
	return nil
}

func (d *demo) conflict() error {
	if err := d.kubectl(d.two, "-n", "shop", "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`); err != nil {
		return err
	}
	if err := d.kubectl(d.two, "-n", "shop", "wait", "--for=condition=Conflict", "--timeout=60s", "serviceexport/web"); err != nil {
		return err
	}
	return d.seamark("--context", d.two, "explain", "web", "-n", "shop")
}

// requests sends twenty.
func (d *demo) requests() (testenv.Tally, error) {
	return d.Call(d.ctx, d.three, "shop", "client", "http://"+service, "--count", "20", "--timeout", "1s", "--list")
}

// until asks again for three minutes.
func (d *demo) until(what string, ask func() (bool, error)) error {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		ok, err := ask()
		if ok && err == nil {
			return nil
		}
		if time.Now().After(deadline) || d.ctx.Err() != nil {
			return fmt.Errorf("%s: not so (%w); see %s", what, errors.Join(err, d.ctx.Err()), filepath.Dir(d.Kubeconfig()))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// seamark and kubectl show a command as a user types it, run it and print what it says.
func (d *demo) seamark(args ...string) error {
	fmt.Printf("$ seamark %s\n", quoted(args))
	out, err := d.Seamark(d.ctx, args...)
	fmt.Print(out)
	return err
}

func (d *demo) kubectl(cluster string, args ...string) error {
	fmt.Printf("$ kubectl --context %s %s\n", cluster, quoted(args))
	out, err := d.Kubectl(d.ctx, cluster, args...)
	fmt.Print(out)
	return err
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

const client = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: $IMAGE, args: [pause]}]
`

const web = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: $IMAGE
          args: [serve]
          env: [{name: CLUSTER, value: $CLUSTER}]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
`
