package dns_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// port returns a port of a service: TCP unless its name is that of UDP.
func port(name string, number int32) mcsv1beta1.ServicePort {
	p := mcsv1beta1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
	if name == "udp" || name == "dns" {
		p.Protocol = corev1.ProtocolUDP
	}
	return p
}

// clusterSetIP returns a service with clusterset IPs.
func clusterSetIP(ns, name string, ips []string, ports ...mcsv1beta1.ServicePort) *mcsv1beta1.ServiceImport {
	if ports == nil {
		ports = []mcsv1beta1.ServicePort{}
	}
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: ips, Ports: ports},
	}
}

// classic returns a service that is reached through each cluster's ClusterIP.
func classic(ns, name string, ports ...mcsv1beta1.ServicePort) *mcsv1beta1.ServiceImport {
	si := clusterSetIP(ns, name, nil, ports...)
	si.Annotations = map[string]string{v1alpha1.AnnotationMode: v1alpha1.ModeClassic}
	return si
}

// headless returns a service that consists of its endpoints.
func headless(ns, name string, ports ...mcsv1beta1.ServicePort) *mcsv1beta1.ServiceImport {
	si := clusterSetIP(ns, name, nil, ports...)
	si.Spec.Type = mcsv1beta1.Headless
	return si
}

// endpoint returns a ready endpoint; change may alter it.
func endpoint(address string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
	for _, c := range change {
		c(&e)
	}
	return e
}

func named(hostname string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Hostname = ptr.To(hostname) }
}

func inZone(zone string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Zone = ptr.To(zone) }
}

func notReady(e *discoveryv1.Endpoint) { e.Conditions.Ready = ptr.To(false) }

func unknownReady(e *discoveryv1.Endpoint) { e.Conditions.Ready = nil }

// imported returns a slice of a service from a cluster, with the service's ports. Its family is
// that of its first address.
func imported(si *mcsv1beta1.ServiceImport, cluster, suffix string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: si.Namespace, Name: fmt.Sprintf("%.30s-%.20s-%s", si.Name, cluster, suffix),
			Labels: map[string]string{mcsv1beta1.LabelServiceName: si.Name, mcsv1beta1.LabelSourceCluster: cluster},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
	if len(endpoints) > 0 {
		for _, c := range endpoints[0].Addresses[0] {
			if c == ':' {
				s.AddressType = discoveryv1.AddressTypeIPv6
			}
		}
	}
	for _, p := range si.Spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.Port)})
	}
	return s
}

// withWeight sets the weight of a slice's cluster.
func withWeight(s *discoveryv1.EndpointSlice, weight string) *discoveryv1.EndpointSlice {
	s.Annotations = map[string]string{v1alpha1.AnnotationWeight: weight}
	return s
}

func create(t testing.TB, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func update(t testing.TB, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Update(t.Context(), o); err != nil {
		t.Fatalf("updating %T %s: %v", o, o.GetName(), err)
	}
}

func remove(t testing.TB, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
