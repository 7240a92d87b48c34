package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	benchNamespace = "bench"
	zone           = benchNamespace + ".svc.clusterset.local."
	headlessName   = "headless"
	headlessSize   = 1000
	writers        = 16
)

// testbed is the control plane and the binaries that are measured.
type testbed struct {
	dir      string
	plane    *controlplane.ControlPlane
	client   client.Client
	services int // made so far
}

func newTestbed(ctx context.Context) (*testbed, error) {
	for _, tool := range []string{"dnsperf", "taskset"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: install it (Debian: apt-get install dnsperf util-linux)", err)
		}
	}
	dir, err := os.MkdirTemp("", "seamark-bench-dns-")
	if err != nil {
		return nil, err
	}
	b := &testbed{dir: dir}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *testbed) start(ctx context.Context) error {
	root, err := kubeparts.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.dir+"/", "./cmd/seamark-dns",
		"./test/bench/dns/constant")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the servers: %w", err)
	}
	kube, err := kubeparts.Kube(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if b.plane, err = controlplane.Start(ctx, kube, controlplane.Options{Name: "bench", Dir: filepath.Join(b.dir, "plane")}); err != nil {
		return err
	}
	if b.client, err = client.New(b.plane.DirectConfig(), client.Options{Scheme: harness.Scheme()}); err != nil {
		return err
	}
	if _, err := crds.Install(ctx, b.client, crds.Member); err != nil {
		return err
	}
	return b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}})
}

// close stops the control plane and removes all files. A process that cannot be stopped ends with
// this one.
func (b *testbed) close() {
	if b.plane != nil {
		_ = b.plane.Stop()
	}
	_ = os.RemoveAll(b.dir)
}

func serviceName(i int) string { return fmt.Sprintf("svc-%d", i) }

func address(i int) string { return fmt.Sprintf("243.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

func newImport(name string, kind mcsv1beta1.ServiceImportType, ips ...string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: name},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: kind, IPs: ips, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func newSlice(service, name, network string, n int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: benchNamespace, Name: name,
			Labels: map[string]string{mcsv1beta1.LabelServiceName: service, mcsv1beta1.LabelSourceCluster: "west"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("%s.%d", network, i+1)}, Hostname: ptr.To(fmt.Sprintf("%s-%d", name, i)),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return s
}

// addServices creates services with a clusterset IP and two endpoints each, until there are n.
func (b *testbed) addServices(ctx context.Context, n int) error {
	err := harness.Parallel(writers, n-b.services, func(offset int) error {
		i := b.services + offset
		if err := b.client.Create(ctx, newImport(serviceName(i), mcsv1beta1.ClusterSetIP, address(i))); err != nil {
			return err
		}
		slice := newSlice(serviceName(i), serviceName(i), fmt.Sprintf("10.%d.%d", i>>8&255, i&255), 2)
		slice.Labels[v1alpha1.LabelClusterSetIP] = "" // as the agent does
		return b.client.Create(ctx, slice)
	})
	b.services = n
	return err
}

// addHeadless creates one headless service of a thousand endpoints.
func (b *testbed) addHeadless(ctx context.Context) error {
	if err := b.client.Create(ctx, newImport(headlessName, mcsv1beta1.Headless)); err != nil {
		return err
	}
	const each = 100
	return harness.Parallel(writers, headlessSize/each, func(i int) error {
		return b.client.Create(ctx, newSlice(headlessName, fmt.Sprintf("%s-%d", headlessName, i), fmt.Sprintf("172.16.%d", i), each))
	})
}
