package proxy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Invalid inputs are left out and logged once; the rest works.
func TestBadInput(t *testing.T) {
	env := newTestEnv(t)
	si := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.IPs = append(si.Spec.IPs, "127.0.0.1")
		si.Spec.Ports = append(si.Spec.Ports, mcsv1beta1.ServicePort{Name: "zero", Port: 0},
			mcsv1beta1.ServicePort{Name: "duplicate", Port: servicePort})
	})
	good := slicesOf("here", env.pods[:1])
	bad := slicesOf("there", nil)
	for _, s := range bad {
		s.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"127.0.0.1"}}, {Addresses: []string{"no address"}}, {}, {Addresses: []string{"169.254.169.254"}},
			{Addresses: []string{"10.9.9.9"}, Conditions: notReady}, {Addresses: []string{"fd99::9"}, Conditions: notReady},
			// one of the two is of the wrong family
			{Addresses: []string{env.pods[0].IPv4.String()}}, {Addresses: []string{env.pods[0].IPv6.String()}}, // twice, with those below
			{Addresses: []string{env.pods[0].IPv4.String()}}, {Addresses: []string{env.pods[0].IPv6.String()}},
		}
		s.Annotations = map[string]string{"seamark.dev/node-regions": "{"}
	}
	for range 3 {
		env.program(si, append(good, bad...)...)
	}
	for _, ipv6 := range families {
		if got := env.countServers(20, ipv6); got["a"] != 20 {
			t.Errorf("reached %v", got)
		}
	}
	if n := strings.Count(strings.Join(env.logLines, "\n"), "cannot be used"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, strings.Join(env.logLines, "\n"))
	}
	if env.syncer.RefusedCount() < 8 {
		t.Errorf("only %d things were refused:\n%s", env.syncer.RefusedCount(), strings.Join(env.logLines, "\n"))
	}
	env.program(service(), good...)
	if env.syncer.RefusedCount() != 0 {
		t.Errorf("after the objects were repaired %d things are still refused", env.syncer.RefusedCount())
	}
}

var notReady = discoveryv1.EndpointConditions{Ready: ptr.To(false)}

func TestFiveThousandEndpoints(t *testing.T) {
	env := newTestEnv(t)
	s := slicesOf("there", nil)
	const n = 5000
	for i := range n {
		for _, slice := range s {
			address := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
			if slice.AddressType == discoveryv1.AddressTypeIPv6 {
				b := netip.MustParseAddr("fd99::").As16()
				b[14], b[15] = byte(i>>8), byte(i)
				address = netip.AddrFrom16(b)
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}})
		}
	}
	env.program(service(withAffinity(60)), s...)
	for _, ipv6 := range families {
		if got := len(env.syncer.Endpoints(ruleset.Frontend{VIP: vip(ipv6), Protocol: ruleset.TCP, Port: servicePort})); got != n {
			t.Errorf("%d endpoints are programmed", got)
		}
	}
	// One pod replaces the last endpoint: that changes two elements of each of the maps, for each port
	// and family.
	for _, slice := range s {
		slice.Endpoints[n-1].Addresses[0] = env.pods[0].IP(slice.AddressType == discoveryv1.AddressTypeIPv6).String()
	}
	if o := env.program(service(withAffinity(60)), s...); o.Added > 6*4 || o.Deleted > 6*4 {
		t.Errorf("a change of one endpoint changed %+v", o)
	}
}

// If two services have the same VIP, the older owns it on every node. The other gets it afterwards.
func TestTwoServicesWithOneVIP(t *testing.T) {
	env := newTestEnv(t)
	younger := service(func(si *mcsv1beta1.ServiceImport) {
		si.Name, si.CreationTimestamp = "another", metav1.NewTime(time.Unix(2, 0))
	})
	env.program(younger, slicesOf("here", env.pods[1:2])...)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	if got := env.countServers(20, false); got["a"] != 20 {
		t.Errorf("the VIP of two services reached %v", got)
	}
	env.syncer.Set(serviceName, time.Time{}, model.Build(nil, nil, env.location))
	if _, err := env.syncer.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := env.countServers(20, false); got["b"] != 20 {
		t.Errorf("after the older one is gone: %v", got)
	}
}
