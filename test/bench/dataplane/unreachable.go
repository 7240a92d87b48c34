package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

const (
	// benchCluster exports all services, farCluster some of them.
	benchCluster, farCluster = "bench", "far"
	// sharedPart is the part of the services that the far cluster exports too: every fifth.
	sharedPart = 5
	// switched is how many connections in a row avoid one of five pods only if it is left out.
	switched = 60
)

// runUnreachable measures how long it takes from publishing a cluster as unreachable until
// connections avoid it.
func runUnreachable(ctx context.Context, small bool, out *report.Report) error {
	size, services, rounds := full, 5_000, 10
	if small {
		services, rounds = 1_000, 3
	}
	size.memoryOnly = true
	b, err := newTestbed(ctx, size)
	if err != nil {
		return err
	}
	defer b.close()
	out.Say("create %d services, of which cluster %s exports %d", services, farCluster, services/sharedPart)
	if err := b.createServices(ctx, services); err != nil {
		return err
	}
	if err := b.createFarSlices(ctx, services); err != nil {
		return err
	}
	s := b.seamark
	if err := s.start(filepath.Join(b.dir, "unreachable.log")); err != nil {
		return err
	}
	defer s.kill()
	if err := s.waitReaches(1); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // syncs and garbage of the start come to their end
	for _, m := range []struct {
		cluster string
		exports int  // services that have slices of the cluster
		first   bool // connections reach the first pod and no other; otherwise the others
	}{{farCluster, services / sharedPart, true}, {benchCluster, services, false}} {
		out.Say("cluster %s becomes unreachable, %d times", m.cluster, rounds)
		var gone, back failover
		for range rounds {
			if err := errors.Join(b.publish(ctx, m.cluster, m.first, &gone), b.withdraw(ctx, m.first, &back)); err != nil {
				return err
			}
		}
		name := fmt.Sprintf("cluster of %s of %s services, %s change: ", count(m.exports), count(services), count(services/sharedPart))
		gone.add(out, name+"unreachable")
		back.add(out, name+"reachable again")
	}
	return nil
}

// failover are the measurements of one kind of change.
type failover struct {
	noticed  []time.Duration // from before the write until connections follow it
	syncs    []time.Duration // as the program itself measures them
	elements float64         // that the last change sent to the kernel
}

func (f *failover) add(out *report.Report, name string) {
	const limit = 200 * time.Millisecond
	out.Add(report.Row{Name: name + ", write → connections", Value: report.Milliseconds(median(f.noticed)), Unit: "ms",
		Budget: fmt.Sprintf("≤ %.0f ms", report.Milliseconds(limit)), Over: median(f.noticed) > limit,
		Detail: fmt.Sprintf("longest %.1f ms; %.0f elements", report.Milliseconds(slices.Max(f.noticed)), f.elements)})
	out.Add(report.Row{Name: name + ", sync", Value: report.Milliseconds(median(f.syncs)), Unit: "ms",
		Detail: fmt.Sprintf("longest %.1f ms", report.Milliseconds(slices.Max(f.syncs)))})
}

// createFarSlices adds endpoints of the far cluster to every fifth service. Those of the moving
// service are all pods but the first.
func (b *testbed) createFarSlices(ctx context.Context, services int) error {
	return harness.Parallel(workers, services/sharedPart, func(n int) error {
		i := n * sharedPart
		name := fmt.Sprintf("svc-%d", i)
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-far", Labels: map[string]string{
				mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: farCluster,
			}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("p"), Port: ptr.To[int32](targetPort)}},
		}
		for e := range b.size.endpoints {
			address := address(10, 210, i*b.size.endpoints+e)
			if i == movingService {
				address = b.seamark.pods[e].IPv4
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: ptr.To("elsewhere")})
		}
		if i == movingService {
			s.Endpoints = s.Endpoints[1:]
		}
		return b.api.Create(ctx, s)
	})
}

// publish makes a cluster unreachable and waits until connections avoid it.
func (b *testbed) publish(ctx context.Context, cluster string, toFirst bool, into *failover) error {
	key := reachable.Key{Cluster: cluster, Family: "IPv4"}
	return b.observe(into, toFirst, true, func() error {
		return b.api.Create(ctx, reachable.Property(reachable.Unreachables{key: time.Now()}))
	})
}

// withdraw makes all clusters reachable and waits until connections are spread again.
func (b *testbed) withdraw(ctx context.Context, toFirst bool, into *failover) error {
	return b.observe(into, !toFirst, false, func() error { return b.api.Delete(ctx, reachable.Property(nil)) })
}

// observe makes a change and waits until connections to the moving service reach its first pod, or
// until they reach another one. If only is set, none may reach any other for a while.
func (b *testbed) observe(into *failover, first, only bool, change func() error) error {
	s := b.seamark
	sum, number, elements, err := s.syncs()
	if err != nil {
		return err
	}
	started := time.Now()
	if err := change(); err != nil {
		return err
	}
	want := 1
	if only {
		want = switched
	}
	var since time.Time
	for inRow := 0; inRow < want; {
		if time.Since(started) > timeout {
			return errors.New("connections do not follow the change")
		}
		now := time.Now()
		answer, err := s.client.TCPWithin(s.vip(movingService), 200*time.Millisecond)
		if err != nil {
			return err
		}
		if (answer.Server == s.pods[0].Name) != first {
			inRow = 0
			continue
		}
		if inRow++; inRow == 1 {
			since = now
		}
	}
	into.noticed = append(into.noticed, since.Sub(started))
	time.Sleep(time.Second) // the proxy counts the sync, and pauses after it
	afterSum, afterNumber, afterElements, err := s.syncs()
	if err == nil && afterNumber == number {
		err = errors.New("the proxy counts no sync")
	}
	into.syncs = append(into.syncs, time.Duration((afterSum-sum)*float64(time.Second)))
	into.elements = afterElements - elements
	return err
}

// syncs returns the total time and the number of incremental syncs, and how many elements were
// sent to the kernel.
func (s *contender) syncs() (sum, number, elements float64, err error) {
	page, err := s.node.Get(s.metrics)
	const changed = `seamark_proxy_changed_elements_total{operation="%s"}`
	elements = netbed.Metric(page, fmt.Sprintf(changed, "add")) + netbed.Metric(page, fmt.Sprintf(changed, "delete"))
	return netbed.Metric(page, s.oneSum), netbed.Metric(page, s.oneCount), elements, err
}
