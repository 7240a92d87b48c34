package proxy_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
	"github.com/seamark-dev/seamark/test/netbed"
)

// flowTo opens UDP flows until one leads to the wanted server.
func (env *testEnv) flowTo(server string) *netbed.UDPFlow {
	env.t.Helper()
	for range 200 {
		flow, err := env.client.UDP(frontend(false))
		if err != nil {
			env.t.Fatal(err)
		}
		env.t.Cleanup(func() { flow.Close() })
		answer, err := flow.Exchange()
		if err != nil {
			env.t.Fatal(err)
		}
		if answer.Server == server {
			return flow
		}
	}
	env.t.Fatalf("no flow leads to %s", server)
	return nil
}

func (env *testEnv) checkFlow(what string, flow *netbed.UDPFlow, want string) {
	env.t.Helper()
	if a, err := flow.Exchange(); err != nil || a.Server != want {
		env.t.Errorf("%s: the flow to %s leads to %q: %v", what, want, a.Server, err)
	}
}

// Only an endpoint that no longer serves loses its flows: not one that terminates, and not one that
// new clients avoid because another is nearer.
func TestUDPFlowsToServingEndpointsStay(t *testing.T) {
	env := newTestEnv(t)
	conditions := func(ready, serving, terminating bool) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) {
			e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
		}
	}
	both := func(change ...func(*discoveryv1.Endpoint)) []*discoveryv1.EndpointSlice {
		return append(slicesOf("here", env.pods[:1], change...), slicesOf("there", env.pods[1:2])...)
	}
	env.program(service(), both()...)
	flow := env.flowTo("a")
	env.program(service(), both(conditions(false, true, true))...)
	env.checkFlow("terminating", flow, "a")
	if got := env.countServers(20, false); got["a"] > 0 {
		t.Errorf("new connections reach the terminating endpoint: %v", got)
	}
	env.syncer = env.newSyncer()
	env.program(service(), both(conditions(false, true, true))...)
	env.checkFlow("terminating, after a restart", flow, "a")
	env.program(service(), both(conditions(false, false, true))...)
	env.checkFlow("not serving", flow, "b")

	near := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
	})
	inZone := func(e *discoveryv1.Endpoint) { e.Zone = ptr.To("zone-a") }
	far := slicesOf("there", env.pods[1:2])
	env.program(near, far...)
	flow = env.flowTo("b")
	env.program(near, slices.Concat(far, slicesOf("here", env.pods[:1], inZone))...)
	env.checkFlow("a nearer endpoint became ready", flow, "b")
	env.program(near, slicesOf("here", env.pods[:1], inZone)...)
	env.checkFlow("the far endpoint is gone", flow, "a")
}

// A clusterset IP moves from one service to another in one sync. The order in which the two are
// programmed must not matter.
func TestHandOverOfClusterSetIP(t *testing.T) {
	env := newTestEnv(t)
	other := service(func(si *mcsv1beta1.ServiceImport) { si.Name = "another" })
	otherName := types.NamespacedName{Namespace: "ns", Name: "another"}
	endpoints := slicesOf("here", env.pods[:1])
	env.program(service(), endpoints...)
	flow := env.flowTo("a")
	from, to := serviceName, otherName
	for round := range 20 { // the order of a map's keys is random
		env.syncer.Set(to, other.CreationTimestamp.Time, model.Build(other, endpoints, env.location))
		env.syncer.Set(from, time.Time{}, model.Result{})
		env.sync()
		for _, protocol := range []ruleset.Protocol{ruleset.TCP, ruleset.UDP} {
			f := ruleset.Frontend{VIP: vip4, Protocol: protocol, Port: servicePort}
			if got := env.syncer.Endpoints(f); !slices.Equal(got, []netip.AddrPort{netbed.At(env.pods[0], targetPort)}) {
				t.Fatalf("round %d: %s has the endpoints %v", round, f, got)
			}
		}
		env.checkFlow("handed over", flow, "a")
		from, to = to, from
	}
	if got := env.countServers(5, false); got["a"] != 5 {
		t.Errorf("reached %v", got)
	}
}
