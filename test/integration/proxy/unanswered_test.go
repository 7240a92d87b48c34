package proxy_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

// swallow makes a pod drop TCP packets to targetPort, as a cluster does that cannot be reached:
// connections are neither answered nor refused. The rule is in the pod, because the node does not
// track a connection whose first packet it drops itself.
func (env *testEnv) swallow(pod *netbed.Pod) (answer func()) {
	env.t.Helper()
	nft := func(command string) {
		env.t.Helper()
		err := pod.Do(func() error {
			out, err := exec.Command("nft", command).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		if err != nil {
			env.t.Fatalf("nft %s: %v", command, err)
		}
	}
	nft(fmt.Sprintf("table inet swallow { chain in { type filter hook input priority 0; tcp dport %d drop; }; }", targetPort))
	return func() { nft("delete table inet swallow") }
}

// pendingConnect is a connection attempt from the client pod that is under way.
type pendingConnect struct {
	outcome <-chan error
	answer  netbed.Answer
}

// connectTo begins to connect and waits until the node tracks the connection to a pod.
func (env *testEnv) connectTo(pod *netbed.Pod, ipv6 bool) *pendingConnect {
	env.t.Helper()
	before := env.tracked(pod, ipv6)
	p := &pendingConnect{}
	p.outcome = env.client.Go(func() (err error) {
		p.answer, err = netbed.DialTCP(frontend(ipv6))
		return err
	})
	harness.Eventually(env.t, "the node tracks the connection to "+pod.Name, func() error {
		if env.tracked(pod, ipv6) == before {
			return errors.New("it does not")
		}
		return nil
	})
	return p
}

// tracked returns how many TCP connections to servicePort lead to a pod.
func (env *testEnv) tracked(pod *netbed.Pod, ipv6 bool) int {
	env.t.Helper()
	count := 0
	_, err := kernel.OpenConntrack(env.node.FD()).Delete(func(flow ruleset.Flow) bool {
		if flow.Frontend == tcpFrontend(ipv6) && flow.Endpoint.Addr() == pod.IP(ipv6) {
			count++
		}
		return false
	})
	if err != nil {
		env.t.Fatal(err)
	}
	return count
}

func tcpFrontend(ipv6 bool) ruleset.Frontend {
	return ruleset.Frontend{VIP: vip(ipv6), Protocol: ruleset.TCP, Port: servicePort}
}

// checkReached checks which server a connection reached that was under way.
func (env *testEnv) checkReached(what string, p *pendingConnect, want string) {
	env.t.Helper()
	if err := <-p.outcome; err != nil || p.answer.Server != want {
		env.t.Errorf("%s: the pending connection reached %q, want %s: %v", what, p.answer.Server, want, err)
	}
}

// connectFrom connects from a port of the client pod.
func (env *testEnv) connectFrom(port uint16, ipv6 bool, limit time.Duration) error {
	return env.client.Do(func() error {
		local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(env.client.IP(ipv6), port))
		c, err := (&net.Dialer{LocalAddr: local, Timeout: limit}).Dial("tcp", frontend(ipv6).String())
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Clients of an endpoint that is gone and never answered reach another one: with the next packet of
// an attempt that is under way, and with the first packet from a port that was used for an attempt.
func TestUnansweredConnectionsMove(t *testing.T) {
	for name, ipv6 := range families {
		for what, change := range map[string]func(env *testEnv){
			"removed":                     func(*testEnv) {},
			"removed while no proxy runs": func(env *testEnv) { env.syncer = env.newSyncer() },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				env := newTestEnv(t)
				env.program(service(), slicesOf("here", env.pods[:1])...)
				env.swallow(env.pods[0])
				const port = 40000
				if err := env.connectFrom(port, ipv6, 100*time.Millisecond); !isTimeout(err) {
					t.Fatalf("the first connection: %v", err)
				}
				pending := env.connectTo(env.pods[0], ipv6)
				change(env)
				env.program(service(), slicesOf("here", env.pods[1:2])...)
				if n := env.tracked(env.pods[0], ipv6); n > 0 {
					t.Errorf("%d connections to the removed endpoint are tracked", n)
				}
				if err := env.connectFrom(port, ipv6, 10*time.Second); err != nil {
					t.Errorf("a connection from the same port: %v", err)
				}
				env.checkReached(what, pending, "b")
			})
		}
	}
}

// A connection that no endpoint answered is refused when its service is deleted.
func TestUnansweredConnectionIsRefusedWithoutService(t *testing.T) {
	env := newTestEnv(t)
	env.syncer.SetRanges(clusterSetRanges)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	env.swallow(env.pods[0])
	pending := env.connectTo(env.pods[0], false)
	env.syncer.Set(serviceName, time.Time{}, model.Result{})
	env.sync()
	if err := <-pending.outcome; err == nil || isTimeout(err) {
		t.Errorf("the pending connection was not refused: %v", err)
	}
}

// Established connections go on, to an endpoint that is gone as well as to others.
func TestEstablishedConnectionsStay(t *testing.T) {
	env := newTestEnv(t)
	const echoing = "echo"
	withEcho := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1beta1.ServicePort{Name: echoing, Protocol: corev1.ProtocolTCP, Port: echoPort})
	})
	on := func(pods ...*netbed.Pod) []*discoveryv1.EndpointSlice {
		out := slicesOf("here", pods)
		for _, s := range out {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(echoing), Port: ptr.To[int32](echoPort)})
		}
		return out
	}
	connections := map[string]net.Conn{}
	for _, pod := range env.pods[:2] {
		env.echo(pod.Namespace, pod.IPv4)
		env.program(withEcho, on(pod)...)
		connections[pod.Name] = env.dial(netip.AddrPortFrom(vip4, echoPort))
		env.checkEcho(pod.Name, connections[pod.Name])
	}
	env.program(withEcho, on(env.pods[:2]...)...)
	env.program(withEcho, on(env.pods[1])...)
	for pod, conn := range connections {
		env.checkEcho("a is removed: the connection to "+pod, conn)
	}
	env.syncer = env.newSyncer()
	env.program(withEcho, on(env.pods[2])...)
	for pod, conn := range connections {
		env.checkEcho("both are removed, and the proxy is replaced: the connection to "+pod, conn)
	}
}

// An attempt to connect to an endpoint that terminates, or that new clients avoid because another
// is nearer, is not interrupted while the endpoint serves: its answer may be under way.
func TestUnansweredConnectionsToServingEndpointsStay(t *testing.T) {
	env := newTestEnv(t)
	terminating := func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	}
	near := func(si *mcsv1beta1.ServiceImport) {
		si.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
	}
	inZone := func(e *discoveryv1.Endpoint) { e.Zone = ptr.To("zone-a") }
	a, b := env.pods[:1], env.pods[1:2]
	for what, then := range map[string]struct {
		service *mcsv1beta1.ServiceImport
		slices  []*discoveryv1.EndpointSlice
	}{
		"terminating":        {service(), slices.Concat(slicesOf("here", a, terminating), slicesOf("there", b))},
		"another one nearer": {service(near), slices.Concat(slicesOf("here", a), slicesOf("there", b, inZone))},
	} {
		env.program(then.service, slicesOf("here", a)...)
		answer := env.swallow(env.pods[0])
		pending := env.connectTo(env.pods[0], false)
		env.program(then.service, then.slices...)
		if got := env.countServers(20, false); got["b"] != 20 {
			t.Errorf("%s: new connections reach %v", what, got)
		}
		answer()
		env.checkReached(what, pending, "a")
	}
}

// A connection that is answered after it was listed, and before it is deleted, stays.
func TestConnectionAnsweredMeanwhileStays(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	answer := env.swallow(env.pods[0])
	pending := env.connectTo(env.pods[0], false)
	matched := 0
	deleted, err := kernel.OpenConntrack(env.node.FD()).Delete(func(flow ruleset.Flow) bool {
		if flow.Frontend != tcpFrontend(false) || !flow.Unanswered {
			return false
		}
		matched++
		answer()
		env.checkReached("answered", pending, "a")
		return true
	})
	if err != nil || matched != 1 || deleted != 0 {
		t.Errorf("matched %d connections and deleted %d: %v", matched, deleted, err)
	}
	if env.tracked(env.pods[0], false) != 1 {
		t.Error("the connection is not tracked any more")
	}
}

// The same with the whole program: a cluster becomes unreachable while clients try to connect to
// it.
func TestUnansweredConnectionsLeaveTheUnreachableCluster(t *testing.T) {
	c := newCluster(t)
	c.create(service())
	there := slicesOf("there", c.pods[1:2])
	c.createSlices(there)
	c.StartReady()
	c.awaitServers("there serves alone", false, "b")
	c.swallow(c.pods[1])
	pending := c.connectTo(c.pods[1], false)
	c.createSlices(slicesOf("here", c.pods[:1]))
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.checkReached("there is unreachable", pending, "a")
}
