//go:build linux

// Command demo shows what Seamark does, on this machine: three real Kubernetes clusters become a
// clusterset, a service of two of them is used by name from a pod of the third, a cluster is cut
// off and reconnected, a conflict is caused and explained. It runs the commands that a user types,
// and prints them.
package main

import (
	"context"
	"encoding/json"
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
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

const sandboxName = "demo"

func main() {
	keep := flag.Bool("keep", false, "leave the clusters running at the end, with a page about them")
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

// run runs the demo and removes the sandbox at the end, also after a failure.
func run(ctx context.Context, dataPlane v1alpha1.DataPlane, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "seamark-demo-")
	if err != nil {
		return err
	}
	d := &demo{ctx: ctx, dir: dir, dataPlane: dataPlane, started: time.Now()}
	if !keep {
		defer func() {
			fmt.Println("\n== Remove the sandbox")
			err = errors.Join(err, testenv.Down(context.Background(), sandboxName, os.Stdout), os.RemoveAll(dir))
		}()
	}
	if err := d.runSteps(); err != nil {
		return err
	}
	fmt.Print("\nDone. What to try next:\n" +
		"  go run ./test/demo --keep                leaves the clusters running\n" +
		"  go run ./test/demo --dataplane nftables  uses the other data plane\n" +
		"  make build && bin/seamark sandbox up     creates clusters for your own experiments\n" +
		"  docs/                                    how it works, and how to install it on your clusters\n")
	if keep {
		return d.kept()
	}
	return nil
}

// kept serves the page about the clusters that stay, and says where everything is.
func (d *demo) kept() error {
	address, err := d.servePage()
	if err != nil {
		return err
	}
	fmt.Printf("\nThe clusters are running: export KUBECONFIG=%s\nLook at them in a browser on this machine: %s\n"+
		"Remove them, and the page: %s sandbox down --name %s\n", d.Kubeconfig(), address, d.CLI, sandboxName)
	return nil
}

// servePage starts the page about the clusters and returns its address. It ends with the sandbox.
func (d *demo) servePage() (address string, err error) {
	log, err := d.StartCompanion("page", d.CLI, "--kubeconfig", d.Kubeconfig(), "ui", "--no-browser", "--contexts", strings.Join(d.Clusters(), ","))
	if err != nil {
		return "", err
	}
	err = testenv.Poll(d.ctx, "the page says its address", time.Minute, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		const before = "The page is at "
		for line := range strings.Lines(string(text)) {
			if found, ok := strings.CutPrefix(line, before); ok {
				address = strings.TrimSpace(found)
				return nil
			}
		}
		return fmt.Errorf("its output in %s: %s", log, text)
	})
	return address, err
}

type demo struct {
	*testenv.Env
	ctx       context.Context
	dir       string
	dataPlane v1alpha1.DataPlane
	started   time.Time

	// The first and the second cluster serve, the importer has the client.
	first, second, importer string
}

// runSteps runs the steps of the demo until one fails.
func (d *demo) runSteps() error {
	for _, step := range []struct {
		title string
		run   func() error
	}{
		{"Start three Kubernetes clusters and join them (the first time, building Kubernetes takes ten minutes)", d.start},
		{"Run a web server in two of them, and export it", d.export},
		{"Use it by name from a pod of the third, which has no such Service", d.use},
		{"Cut off one of the serving clusters", d.cut},
		{"Cause a conflict, and explain it", d.conflict},
	} {
		fmt.Printf("\n== %s  [%s]\n", step.title, time.Since(d.started).Round(time.Second))
		if err := step.run(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start() (err error) {
	d.Env, err = testenv.Up(d.ctx, d.dir, sandbox.Options{Name: sandboxName, DataPlane: d.dataPlane, Progress: os.Stdout})
	if err != nil {
		return err
	}
	names := d.Clusters()
	d.first, d.second, d.importer = names[0], names[1], names[2]
	return d.seamark("--context", d.first, "cluster", "list")
}

func (d *demo) export() error {
	for _, cluster := range d.Clusters() {
		manifest := testenv.Client
		if cluster != d.importer {
			manifest += "---\n" + testenv.Web(2)
		}
		if err := d.Apply(d.ctx, cluster, manifest); err != nil {
			return err
		}
	}
	for _, cluster := range []string{d.first, d.second} {
		if err := d.RolledOut(d.ctx, cluster, "shop", "deployment/web"); err != nil {
			return err
		}
		if err := d.seamark("--context", cluster, "export", "service", "web", "-n", "shop", "--wait"); err != nil {
			return err
		}
	}
	_, err := d.Kubectl(d.ctx, d.importer, "-n", "shop", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")
	return err
}

func (d *demo) use() error {
	if err := d.kubectl(d.importer, "-n", "shop", "get", "serviceimports,services"); err != nil {
		return err
	}
	if err := d.eventually("both clusters answer", func(tally testenv.Tally) bool {
		return tally.Failed == 0 && len(tally.Clusters) == 2
	}); err != nil {
		return err
	}
	fmt.Printf("\nin a pod of %s: the address of %s\n", d.importer, testenv.WebName)
	addresses, err := d.Lookup(d.ctx, d.importer, "shop", "client", testenv.WebName, "A")
	if err != nil {
		return err
	}
	fmt.Println("  " + strings.Join(addresses, " "))
	return d.showRequests()
}

// showRequests sends twenty requests and prints which cluster answered each.
func (d *demo) showRequests() error {
	fmt.Printf("\nin a pod of %s: twenty requests to http://%s\n", d.importer, testenv.WebName)
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
	if err := d.awaitReached(); err != nil {
		return err
	}
	const load = 8 * time.Second
	fmt.Printf("in a pod of %s: a request to http://%s every 10 ms, for %s\n", d.importer, testenv.WebName, load)
	outcome := d.CallInBackground(d.ctx, d.importer, "shop", "client", "http://"+testenv.WebName, load)
	time.Sleep(2 * time.Second)
	fmt.Printf("$ seamark sandbox fault cut %s\n", d.second)
	since := time.Now()
	if err := d.Cut(d.ctx, fault.Path{From: d.second}); err != nil {
		return err
	}
	tally, err := outcome()
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d requests failed: those that went to %s until %.1f s after it was cut off\n",
		tally.Failed, tally.Requests, d.second, tally.Recovery(since).Seconds())
	if err := d.showRequests(); err != nil {
		return err
	}
	if err := d.seamark("--context", d.importer, "status"); err != nil {
		return err
	}
	fmt.Println("$ seamark sandbox fault heal")
	if _, err := d.Heal(d.ctx, fault.Selection{}); err != nil {
		return err
	}
	since = time.Now()
	if err := d.eventually(d.second+" serves again", func(tally testenv.Tally) bool {
		return tally.Failed == 0 && tally.Clusters[d.second] > 0
	}); err != nil {
		return err
	}
	fmt.Printf("%s serves again %s after the network healed\n", d.second, time.Since(since).Round(time.Second))
	return nil
}

// awaitReached waits until the beacons of the serving clusters have answered the importer.
func (d *demo) awaitReached() error {
	fmt.Printf("waiting until %s has heard the beacons of %s and %s\n", d.importer, d.first, d.second)
	return testenv.Poll(d.ctx, "the beacons answer", 3*time.Minute, func() error {
		out, err := d.Seamark(d.ctx, "--context", d.importer, "status", "-o", "json")
		if err != nil {
			return err
		}
		var report status.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return err
		}
		reached := map[string]bool{}
		for _, path := range report.Reachability {
			if path.From == d.importer && path.State == objects.Reachable {
				reached[path.Cluster] = true
			}
		}
		if !reached[d.first] || !reached[d.second] {
			return fmt.Errorf("the paths are %+v", report.Reachability)
		}
		return nil
	})
}

func (d *demo) conflict() error {
	if err := d.kubectl(d.second, "-n", "shop", "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`); err != nil {
		return err
	}
	if err := d.kubectl(d.second, "-n", "shop", "wait", "--for=condition=Conflict", "--timeout=60s", "serviceexport/web"); err != nil {
		return err
	}
	return d.seamark("--context", d.second, "explain", "web", "-n", "shop")
}

// requests sends twenty requests from the client.
func (d *demo) requests() (testenv.Tally, error) {
	return d.Call(d.ctx, d.importer, "shop", "client", "http://"+testenv.WebName, "--count", "20", "--timeout", "1s", "--list")
}

// eventually sends requests until their outcome is as expected, for at most three minutes.
func (d *demo) eventually(what string, expected func(testenv.Tally) bool) error {
	err := testenv.Poll(d.ctx, what, 3*time.Minute, func() error {
		tally, err := d.requests()
		if err == nil && !expected(tally) {
			err = fmt.Errorf("the last requests: %+v", tally)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; the logs are below %s", err, filepath.Dir(d.Kubeconfig()))
	}
	return nil
}

// seamark runs the CLI and prints the command as a user types it, and its output.
func (d *demo) seamark(args ...string) error {
	fmt.Printf("$ seamark %s\n", quoted(args))
	out, err := d.Seamark(d.ctx, args...)
	fmt.Print(out)
	return err
}

// kubectl does the same with kubectl.
func (d *demo) kubectl(cluster string, args ...string) error {
	fmt.Printf("$ kubectl --context %s %s\n", cluster, quoted(args))
	out, err := d.Kubectl(d.ctx, cluster, args...)
	fmt.Print(out)
	return err
}

// quoted returns arguments as a user types them in a shell.
func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, ` {}[]"*`) {
			out[i] = "'" + a + "'"
		}
	}
	return strings.Join(out, " ")
}
