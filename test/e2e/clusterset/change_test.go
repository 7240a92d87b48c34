//go:build linux

package clusterset_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/e2e/bed"
)

// underLoad sends requests from the client all the time while something happens, and returns what became of them.
func (w *world) underLoad(happens func()) bed.Tally {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 10*time.Minute)
	defer cancel()
	type outcome struct {
		tally bed.Tally
		err   error
	}
	done := make(chan outcome, 1)
	stop := make(chan struct{})
	go func() {
		var sum bed.Tally
		sum.Clusters, sum.Errors = map[string]int{}, map[string]int{}
		for {
			part, err := w.Call(ctx, w.three, "shop", "client", "http://"+shopName, "--duration", "3s", "--interval", "5ms", "--timeout", "5s")
			if err != nil {
				done <- outcome{sum, err}
				return
			}
			sum.Requests, sum.Failed = sum.Requests+part.Requests, sum.Failed+part.Failed
			sum.LongestGap = max(sum.LongestGap, part.LongestGap)
			for k, v := range part.Clusters {
				sum.Clusters[k] += v
			}
			for k, v := range part.Errors {
				sum.Errors[k] += v
			}
			select {
			case <-stop:
				done <- outcome{sum, nil}
				return
			default:
			}
		}
	}()
	happens()
	close(stop)
	o := <-done
	w.must(o.err)
	return o.tally
}

// seamarkWorkloads are what `seamark join` installed in a cluster.
func (w *world) seamarkWorkloads(cluster string) []string {
	w.Helper()
	return strings.Fields(w.kubectl(cluster, "-n", "seamark-system", "get", "deployments,daemonsets", "-o", "name"))
}

// Every Seamark workload is restarted everywhere while clients work: no request fails.
func rollingRestart(w *world) {
	tally := w.underLoad(func() {
		for _, cluster := range w.Clusters() {
			workloads := w.seamarkWorkloads(cluster)
			if len(workloads) < 2 {
				w.Fatalf("%s has only %v", cluster, workloads)
			}
			for _, workload := range workloads {
				w.kubectl(cluster, "-n", "seamark-system", "rollout", "restart", workload)
				w.must(w.RolledOut(w.Context(), cluster, "seamark-system", workload))
			}
		}
	})
	if tally.Failed > 0 || tally.Requests < 100 {
		w.Errorf("%+v", tally)
	}
	w.Logf("%d requests, none failed, the longest wait for an answer was %d ms", tally.Requests, tally.LongestGap)
}

// An upgrade changes the release while clients work: no request fails.
func upgrade(w *world) {
	before := w.kubectl(w.three, "-n", "seamark-system", "get", "deployment", "seamark-agent", "-o", "jsonpath={.metadata.generation}")
	tally := w.underLoad(func() {
		w.seamark("--context", w.three, "join", "--broker-context", w.one, "--broker-server", w.brokerServer(), "--image", w.Image(), "--set", "logLevel=debug")
	})
	after := w.kubectl(w.three, "-n", "seamark-system", "get", "deployment", "seamark-agent", "-o", "jsonpath={.metadata.generation}")
	if tally.Failed > 0 || before == after {
		w.Errorf("generation %s, then %s: %+v", before, after, tally)
	}
	releases := w.kubectl(w.three, "-n", "seamark-system", "get", "secrets", "-l", "owner=helm", "-o", "name")
	if len(strings.Fields(releases)) < 2 {
		w.Errorf("Helm knows of %v", releases)
	}
}

// brokerServer is where members reach the broker.
func (w *world) brokerServer() string {
	w.Helper()
	config, err := w.Config(w.one)
	w.must(err)
	return config.Host
}

// A cluster that serves is cut off from all others: its share of the requests fails until its lease is over, then none does; when it is back,
// it serves again.
func failover(w *world) {
	w.must(errors.Join(w.Partition(w.Context(), w.two, w.one), w.Partition(w.Context(), w.two, w.three)))
	start := time.Now()
	w.eventually("only "+w.one+" answers", 3*time.Minute, func() error {
		tally := w.call("http://"+shopName, "--count", "20", "--timeout", "500ms")
		if tally.Failed > 0 || tally.Clusters[w.one] != 20 {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
	w.Logf("%s after it was cut off no request goes to %s any more", time.Since(start).Round(time.Second), w.two)
	w.must(w.Heal(w.Context()))
	start = time.Now()
	w.eventually("both answer again", 3*time.Minute, func() error {
		tally := w.call("http://"+shopName, "--count", "40", "--timeout", "500ms")
		if tally.Failed > 0 || tally.Clusters[w.two] == 0 {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
	w.Logf("%s after the network healed both serve", time.Since(start).Round(time.Second))
}

// A member leaves while clients work, and its services go with it; it joins again and they return.
func leaveAndRejoin(w *world) {
	w.seamark("--context", w.two, "leave")
	w.answeredBy("http://"+shopName, w.one)
	// The id may stay: it is the cluster's own. That it is a member may not.
	left := w.kubectl(w.two, "get", "serviceimports,clusterproperties", "-A", "-o", "name")
	if strings.Contains(left, "serviceimport") || strings.Contains(left, "/clusterset.k8s.io") {
		w.Errorf("left behind: %s", left)
	}
	w.seamark("--context", w.two, "join", "--broker-context", w.one, "--broker-server", w.brokerServer(), "--clusterid", w.two, "--image", w.Image())
	w.answeredBy("http://"+shopName, w.one, w.two)
}

// All leave and the broker is removed: nothing of Seamark is left but what users made.
func uninstall(w *world) {
	for _, cluster := range []string{w.three, w.two, w.one} {
		w.seamark("--context", cluster, "leave", "--broker-context", w.one)
	}
	w.seamark("--context", w.one, "broker", "remove")
	for _, cluster := range w.Clusters() {
		w.eventually("nothing left in "+cluster, patience, func() error {
			kinds := "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
			var left []string
			for name := range strings.Lines(w.kubectl(cluster, "get", kinds, "-o", "name")) {
				if strings.Contains(name, "seamark") {
					left = append(left, strings.TrimSpace(name))
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("left: %v", left)
			}
			return nil
		})
		if forward := w.kubectl(cluster, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"); strings.Contains(forward, "clusterset.local") {
			w.Errorf("%s: the cluster's DNS still forwards:\n%s", cluster, forward)
		}
	}
}
