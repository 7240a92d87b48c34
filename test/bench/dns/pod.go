package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/harness"
)

// clusterCorefile is that of kubeadm, on a free port.
const clusterCorefile = `.:%d {
    bind 127.0.0.1
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       kubeconfig %s
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus 127.0.0.1:%d
    cache 30
    loop
    reload
    loadbalance
}
`

// addLocalServices creates Services of the cluster itself, to compare with.
func (b *testbed) addLocalServices(ctx context.Context, n int) error {
	return harness.Parallel(writers, n, func(i int) error {
		return b.client.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: serviceName(i)},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
	})
}

// measurePod measures what a pod gets from the cluster's own DNS, to which join has added its
// server block: names of the clusterset, and of n Services of the cluster.
func (b *testbed) measurePod(ctx context.Context, n int, size sizes, r *report.Report) error {
	seamark, err := b.startServer(servers[1])
	if err != nil {
		return err
	}
	defer seamark.stop()
	if _, _, err := seamark.answerable(ctx, n); err != nil {
		return err
	}
	cluster, err := b.startClusterDNS(seamark.port)
	if err != nil {
		return err
	}
	defer cluster.stop()
	zones := [2]string{"clusterset.local", "cluster.local"}
	var queries [2]string
	for i, zone := range zones {
		name := benchNamespace + ".svc." + zone + "."
		if err := cluster.answered(ctx, n, name); err != nil {
			return err
		}
		if queries[i], err = b.queriesFor(zone, n, name); err != nil {
			return err
		}
	}
	r.Say("as a pod sees it, %d turns of load", size.turns)
	var rates, cpus [2][]float64
	for turn := range size.turns {
		for i := range zones {
			z := (turn + i) % len(zones)
			if err := b.turn(ctx, cluster, queries[z], &rates[z], &cpus[z]); err != nil {
				return err
			}
		}
	}
	own, other := median(rates[0]), median(rates[1])
	r.Add(report.Row{Name: fmt.Sprintf("answers per second as a pod sees it, %d services", n), Unit: "/s", Value: own,
		Peers: []float64{0, 0, other}, Budget: "≥ 1.0 × cluster.local", Over: own < other})
	r.Add(report.Row{Name: fmt.Sprintf("CPU of the cluster's DNS per query, %d services", n), Unit: "µs",
		Value: median(cpus[0]), Peers: []float64{0, 0, median(cpus[1])}})
	return nil
}

func (b *testbed) queriesFor(zone string, n int, suffix string) (string, error) {
	next := 0
	return b.queryFile(zone, n, suffix, func() string {
		next++
		return serviceName(next % n)
	})
}

// startClusterDNS runs the cluster's own DNS with what join adds to it.
func (b *testbed) startClusterDNS(forwardTo int) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	block, err := corefile.Block(corefile.Forward{Servers: []string{fmt.Sprintf("127.0.0.1:%d", forwardTo)}})
	if err != nil {
		return nil, err
	}
	block = strings.Replace(block, ":53 {\n", fmt.Sprintf(":%d {\n    bind 127.0.0.1\n", port), 1)
	return b.run(server{name: "cluster", binary: "seamark-dns"}, port, fmt.Sprintf(clusterCorefile, port, b.plane.Kubeconfig(), metrics)+block)
}
