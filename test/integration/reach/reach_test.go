// Package reach_test runs agents on real API servers and beacons in network namespaces: agents
// publish the beacons of their clusters, and find out which clusters they reach.
package reach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/beacon"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

func TestMain(m *testing.M) { harness.Main(m) }

// site is a member with nodes on which beacons run. The nodes are network namespaces that this
// process reaches over links of their own.
type site struct {
	*fleet.Member
	t       *testing.T
	metrics string // where its agent serves metrics
	folder  string // what the kubelet would mount for the beacons
	nodes   []*netbed.Node
	ips     []netip.Addr
	stop    []func()
}

func newSite(t *testing.T, m *fleet.Member, nodes int) *site {
	t.Helper()
	s := &site{Member: m, t: t, folder: t.TempDir(), metrics: freeAddress(t)}
	m.Agent.MetricsAddress = s.metrics
	for range nodes {
		node, err := netbed.NewNode()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		ip, err := node.LinkToHost()
		if err != nil {
			t.Fatal(err)
		}
		s.nodes, s.ips = append(s.nodes, node), append(s.ips, ip)
	}
	t.Cleanup(s.stopBeacons)
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// startBeacons runs a beacon on each node.
func (s *site) startBeacons() {
	s.t.Helper()
	for i, node := range s.nodes {
		var responder *beacon.Responder
		err := node.Do(func() (err error) {
			responder, err = beacon.Open(beacon.Options{
				Listen: netip.AddrPortFrom(s.ips[i], wire.Port).String(), Folder: s.folder, Log: slog.New(slog.DiscardHandler),
			})
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- responder.Run(ctx) }()
		s.stop = append(s.stop, func() { cancel(); <-ended })
	}
}

func (s *site) stopBeacons() {
	for _, stop := range s.stop {
		stop()
	}
	s.stop = nil
}

// publishPods writes the slice that the endpointslice controller would, for the Service of the
// beacons.
func (s *site) publishPods(notReady int) {
	s.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: objects.AgentNamespace, Name: "seamark-beacon-abc",
			Labels: map[string]string{discoveryv1.LabelServiceName: objects.BeaconService},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("beacon"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](wire.Port)}},
	}
	for i, ip := range s.ips {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip.String()}, NodeName: ptr.To(fmt.Sprintf("node-%d", i)),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(i >= notReady)},
		})
	}
	err := s.Client.Create(context.Background(), slice)
	if err != nil {
		err = s.Client.Update(context.Background(), slice)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// mountSecret waits for the Secret that the agent writes, and mounts it as the kubelet would.
func (s *site) mountSecret() {
	s.t.Helper()
	secret := &corev1.Secret{}
	harness.Eventually(s.t, "the key of the beacons of "+s.ID, func() error {
		return s.Client.Get(context.Background(), types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BeaconSecret}, secret)
	})
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(s.folder, name), content, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// awaitPublished waits until the broker has as many addresses of beacons of the member.
func (s *site) awaitPublished(f *fleet.Fleet, want int) *v1alpha1.Cluster {
	s.t.Helper()
	cluster := &v1alpha1.Cluster{}
	harness.Eventually(s.t, fmt.Sprintf("%d beacons of %s on the broker", want, s.ID), func() error {
		if err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: s.ID}, cluster); err != nil {
			return err
		}
		if b := cluster.Status.Beacons; b == nil || len(b.Addresses) != want || b.Port != wire.Port || len(b.Key) != wire.KeySize {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
	return cluster
}

// awaitReached waits until the agent says that it reaches another cluster so.
func (s *site) awaitReached(other string, state objects.ReachState, reason objects.ReachReason) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprintf("%s sees %s %s (%s)", s.ID, other, state, reason), func() error {
		body, err := get("http://" + s.metrics + objects.ReachabilityPath)
		if err != nil {
			return err
		}
		var list []objects.Reachability
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			return err
		}
		for _, r := range list {
			if r.Cluster == other && r.Family == corev1.IPv4Protocol && r.State == state && r.Reason == reason {
				return nil
			}
		}
		return errors.New(body)
	})
}

func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// awaitEvent waits until the agent has recorded an event about another cluster.
func (s *site) awaitEvent(reason, note string) {
	s.t.Helper()
	harness.Eventually(s.t, "event "+reason+" in "+s.ID, func() error {
		var list eventsv1.EventList
		if err := s.Client.List(context.Background(), &list, client.InNamespace(objects.AgentNamespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Reason == reason && strings.Contains(list.Items[i].Note, note) {
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(list.Items))
	})
}

func TestTwoClustersReachEachOther(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west := newSite(t, f.Members[0], 3), newSite(t, f.Members[1], 1)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ns := fleet.NewNamespace(t, f.Members...)
	// Endpoints are at addresses of the nodes, where no process listens on their port yet.
	for name, s := range map[string]*site{"web": east, "db": west} {
		s.Serve(t, fleet.NewService(ns, name), s.ips[0].String())
		s.Export(t, ns, name)
	}
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {east.ips[0].String()}})
	east.AwaitImport(t, ns, "db", map[string][]string{"west": {west.ips[0].String()}})
	west.awaitReached("east", objects.ReachabilityUnknown, objects.ReachNoBeacons)

	// Only pods that are ready are published.
	east.publishPods(1)
	east.awaitPublished(f, 2)
	west.awaitReached("east", objects.ReachabilityUnknown, objects.ReachNeverAnswered)
	east.publishPods(0)
	west.publishPods(0)
	east.awaitPublished(f, 3)
	west.awaitPublished(f, 1)

	for _, s := range []*site{east, west} {
		s.mountSecret()
		s.startBeacons()
	}
	west.awaitReached("east", objects.Reachable, objects.ReachBeaconsAnswer)
	east.awaitReached("west", objects.Reachable, objects.ReachBeaconsAnswer)
	west.awaitEvent("ClusterReachable", "cluster east (IPv4) is reachable: beacons-answer")
	if text, err := get("http://" + west.metrics + "/metrics"); err != nil || !strings.Contains(text, `seamark_reachable{cluster="`) {
		t.Errorf("no metric seamark_reachable: %v", err)
	}

	before := east.awaitPublished(f, 3)

	// The beacons stop, but an endpoint accepts connections: the cluster is reached.
	port := fleet.NewSlice(fleet.NewService(ns, "web"), "x", "10.0.0.1").Ports[0].Port
	listener, err := east.nodes[0].ServeTCP("web", netip.AddrPortFrom(east.ips[0], uint16(*port)))
	if err != nil {
		t.Fatal(err)
	}
	east.stopBeacons()
	west.awaitReached("east", objects.Reachable, objects.ReachEndpointsAnswer)
	// The endpoint stops as well.
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	west.awaitReached("east", objects.Unreachable, objects.ReachNoAnswer)
	west.awaitEvent("ClusterUnreachable", "cluster east (IPv4) is unreachable: no-answer")
	east.awaitReached("west", objects.Reachable, objects.ReachBeaconsAnswer)

	east.startBeacons()
	west.awaitReached("east", objects.Reachable, objects.ReachBeaconsAnswer)
	// All that costs no write on the broker.
	if after := east.awaitPublished(f, 3); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the status of east was written: %+v, before %+v", after.Status, before.Status)
	}
}
