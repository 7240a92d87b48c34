package proxy_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/test/netbed"
)

// A remote pod has a route to the node's end of the tunnel only. A process of the node uses the
// address of the default route, so that by default its source must be changed; pods keep theirs.
func TestMasquerade(t *testing.T) {
	env := newTestEnv(t)
	remote, err := env.node.AddRemotePod("remote")
	if err != nil {
		t.Fatal(err)
	}
	for _, ipv6 := range families {
		env.serve(remote.Namespace, "remote", netip.AddrPortFrom(remote.IP(ipv6), targetPort))
	}
	for _, test := range []struct {
		policy    kernel.Masquerade
		host, pod bool // whether they reach the remote pod
	}{
		{kernel.MasqueradeNone, false, false}, {kernel.MasqueradeHost, true, false}, {kernel.MasqueradeAll, true, true},
	} {
		env.masquerade = test.policy
		env.syncer = env.newSyncer()
		env.syncer.SetRanges(clusterSetRanges)
		env.program(service(), slicesOf("there", []*netbed.Pod{remote})...)
		for name, ipv6 := range families {
			for client, reaches := range map[*netbed.Namespace]bool{env.node.Namespace: test.host, env.client.Namespace: test.pod} {
				what := fmt.Sprintf("%s, masquerade %s, from the node: %t", name, test.policy, client == env.node.Namespace)
				limit := 10 * time.Second
				if !reaches {
					limit = 300 * time.Millisecond // an answer never comes
				}
				if a, err := client.TCPWithin(frontend(ipv6), limit); (err == nil) != reaches {
					t.Errorf("%s: %+v, %v", what, a, err)
				}
			}
			if !test.pod {
				env.program(service(), slicesOf("here", env.pods)...)
				if a := env.connect(ipv6); a.Client != env.client.IP(ipv6) {
					t.Errorf("%s, masquerade %s: the server saw %s, the pod is %s", name, test.policy, a.Client, env.client.IP(ipv6))
				}
				env.program(service(), slicesOf("there", []*netbed.Pod{remote})...)
			}
		}
	}
}
