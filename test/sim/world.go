// Package sim runs a clusterset in one process and without real time: modelled API servers, caches
// that lag, and the agents' real reconcilers, watches and tasks. One seed chooses the history:
// who exports what, in which order changes arrive, what crashes and what is cut off. After every
// write invariants are checked, and at the end that all members agree. See docs/simulation.md.
package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	brokerNamespace = "seamark-broker"
	clusterSet      = "sim"
	namespace       = "shop"
)

// together is an eagerness with which nearly everything is delivered before anything is reconciled.
const together = 60

// world is a clusterset.
type world struct {
	rng     *rand.Rand
	broker  *server
	members []*member
	// services are the names of the services that are exported. The first ones are calm: after the
	// beginning their exporters do not change, only faults happen to them.
	services []string
	calm     int

	deliverable    []*informer // informers with changes to deliver
	ready, delayed workList
	// eagerness is how many changes are delivered between two reconciles: many are reconciled
	// together if it is high.
	eagerness int
	processes int
	tasks     int
	restless  int // how often in a row work ended although there was more to do
	// writes counts all writes but those of leases.
	writes  int
	size    size
	checker *checker
	failure error
	trace   []string
	tracing bool
	started time.Time
	// order counts what the agents' tasks and the scheduler do. They never run at the same time,
	// but only such an atomic value shows that to the race detector.
	order atomic.Int64
}

// member is a cluster with its agent.
type member struct {
	world      *world
	id         string
	index      int
	server     *server
	membership objects.Membership
	facts      agent.ClusterFacts
	agent      *agentProcess
	former     []*agentProcess // processes that lost their leadership
	cutOff     bool            // from the broker
	failing    int             // how many of the next writes may fail
	deadSince  time.Time       // zero while the member is to be alive
	// steadySince is when the member last returned or was reconnected.
	steadySince time.Time
}

func newWorld(seed uint64) *world {
	w := &world{eagerness: together, rng: rand.New(rand.NewPCG(seed, 0)), started: time.Now()}
	w.checker = newChecker(w)
	w.broker = newServer("broker", func(verb string, obj client.Object) { w.wrote(nil, verb, obj) })
	w.must(w.broker.create(&v1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: brokerNamespace, Name: clusterSet},
		Spec: v1alpha1.ClusterSetSpec{
			ClusterSetIP:   v1alpha1.ClusterSetIPSettings{Ranges: []v1alpha1.CIDR{"243.0.0.0/8", "fd43::/32"}},
			StaleEndpoints: v1alpha1.StaleEndpointsFailover,
		},
	}))
	ids := []string{"east", "west", "north", "south"}
	w.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for i := range 1 + few(w.rng) {
		w.addMember(ids[i], i)
	}
	w.services = []string{"web", "db", "api"}[:few(w.rng)]
	w.calm = w.rng.IntN(len(w.services) + 1)
	return w
}

// few returns one to three, and smaller numbers more often: most faults need only few members and
// services, and a small world plays many more histories in the same time.
func few(rng *rand.Rand) int { return []int{1, 1, 1, 2, 2, 3}[rng.IntN(6)] }

func (w *world) addMember(id string, index int) {
	m := &member{world: w, id: id, index: index}
	m.server = newServer(id, func(verb string, obj client.Object) { w.wrote(m, verb, obj) })
	m.server.ranges = map[corev1.IPFamily]netip.Addr{
		corev1.IPv4Protocol: netip.AddrFrom4([4]byte{10, byte(100 + index), 0, 0}),
		corev1.IPv6Protocol: netip.MustParseAddr(fmt.Sprintf("fd10:%d::", 100+index)),
	}
	if w.rng.IntN(4) == 0 {
		m.server.skew = time.Duration(w.rng.IntN(7200)-3600) * time.Second
	}
	m.facts = agent.ClusterFacts{Holder: "uid-" + id, Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}
	if w.rng.IntN(5) == 0 {
		m.facts.Families = m.facts.Families[:1]
	}
	plane := v1alpha1.DataPlaneService
	if w.rng.IntN(2) == 0 {
		plane = v1alpha1.DataPlaneNFTables
	}
	m.membership = objects.Membership{
		ClusterID: id, ClusterSet: clusterSet, Namespace: brokerNamespace, Server: "https://broker", Token: "token", DataPlane: plane,
	}
	w.must(w.broker.create(&v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: brokerNamespace, Name: id},
		Spec: v1alpha1.ClusterSpec{ClusterSetIPBlocks: []v1alpha1.CIDR{
			v1alpha1.CIDR(fmt.Sprintf("243.%d.0.0/16", index)), v1alpha1.CIDR(fmt.Sprintf("fd43:0:0:%d::/64", index)),
		}},
	}))
	w.must(w.broker.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: brokerNamespace, Name: id}}))
	for _, name := range []string{metav1.NamespaceSystem, objects.AgentNamespace, namespace} {
		w.must(m.server.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	w.must(m.server.create(m.membership.Secret()))
	w.must(m.server.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + id}}))
	w.members = append(w.members, m)
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

func joinErrors(errs []error) error { return errors.Join(errs...) }

// logf adds a line to the history of a world that is traced.
func (w *world) logf(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%8.3fs ", time.Since(w.started).Seconds())+fmt.Sprintf(format, args...))
	}
}

// wrote is called after each write. m is nil for the broker.
func (w *world) wrote(m *member, verb string, obj client.Object) {
	if _, lease := obj.(*coordinationv1.Lease); lease {
		return
	}
	w.writes++
	if w.tracing {
		where := "broker"
		if m != nil {
			where = m.id
		}
		w.logf("    %s: %s %s %s %s", where, verb, kindOf(obj).name, obj.GetName(), describe(obj))
	}
	w.checker.touch(m, obj)
}

// fail records that a rule does not hold. The first failure ends the history.
func (w *world) fail(r rule, format string, args ...any) {
	if _, off := notYet[r]; !off && w.failure == nil {
		w.failure = &violation{r, fmt.Sprintf(format, args...)}
		w.logf("FAILED: %v", w.failure)
	}
}

// staleness returns by how many changes a list is behind: mostly none.
func (w *world) staleness() int {
	if w.rng.IntN(4) > 0 {
		return 0
	}
	return w.rng.IntN(6)
}

// drop removes everything of a process that stopped.
func (w *world) drop(a *agentProcess) {
	w.ready.drop(a)
	w.delayed.drop(a)
}

// step delivers one change or runs one reconcile, whichever the seed chooses, and reports whether
// there was one.
func (w *world) step() bool {
	if w.failure != nil {
		return false
	}
	w.deliverable = slices.DeleteFunc(w.deliverable, func(i *informer) bool {
		i.queued = i.hasWork()
		return !i.queued
	})
	deliveries, reconciles := len(w.deliverable), len(w.ready.items)
	if deliveries+reconciles == 0 {
		return false
	}
	// Choose the sort of work first: many changes must not keep reconcilers from running.
	if reconciles == 0 || deliveries > 0 && w.rng.IntN(w.eagerness+1) < w.eagerness {
		w.size.deliveries++
		i := w.deliverable[w.rng.IntN(deliveries)]
		i.deliver(w.staleness())
	} else {
		w.size.reconciles++
		item := w.ready.take(w.rng.IntN(reconciles))
		item.queue.reconcile(item.request)
	}
	w.settle()
	return true
}

// settle waits for the tasks that were woken, and checks what was written.
func (w *world) settle() {
	w.order.Add(1)
	synctest.Wait()
	w.checker.check()
}

// sleep lets time pass.
func (w *world) sleep(d time.Duration) {
	w.order.Add(1)
	time.Sleep(d)
	synctest.Wait()
	now := time.Now()
	for i := 0; i < len(w.delayed.items); {
		if w.delayed.items[i].at.After(now) {
			i++
			continue
		}
		item := w.delayed.take(i)
		item.at = time.Time{}
		w.ready.add(item)
	}
	for _, m := range w.members {
		for found := true; found; {
			found = m.server.collectGarbage()
		}
	}
	w.checker.check()
}

// work does everything that can be done without time passing.
func (w *world) work() {
	for n := 0; w.step(); n++ {
		if n < 2000 {
			continue
		}
		// Two members of which one does not see the other's changes may overwrite each other, and
		// so may two that take each other for dead, until they check that again.
		if w.restless++; w.restless > maxRestless && !w.anyFrozen() {
			w.fail(ruleRest, "the agents never come to rest: they reconcile without end")
		}
		return
	}
	w.restless = 0
}

// maxRestless is how often in a row agents may still have work after very many steps. A little time
// passes in between.
const maxRestless = 10

func (w *world) anyFrozen() bool {
	return slices.ContainsFunc(w.members, func(m *member) bool {
		frozen := func(i *informer) bool { return i.frozen }
		return slices.ContainsFunc(m.agent.local.order, frozen) || slices.ContainsFunc(m.agent.broker.order, frozen)
	})
}

// run lets time pass for d and does all work meanwhile.
func (w *world) run(d time.Duration) {
	end := time.Now().Add(d)
	for w.failure == nil {
		w.work()
		left := time.Until(end)
		if left <= 0 {
			return
		}
		w.sleep(min(left, w.next()))
	}
}

// next returns how long it takes until something is due.
func (w *world) next() time.Duration {
	next := time.Second
	for _, item := range w.delayed.items {
		next = min(next, max(time.Until(item.at), time.Millisecond))
	}
	return next.Truncate(time.Millisecond) + time.Millisecond
}

// idle reports whether no agent has anything to do or waits for a time.
func (w *world) idle() bool {
	return len(w.ready.items)+len(w.delayed.items) == 0
}

// stopAll ends all processes, so that the history can end.
func (w *world) stopAll() {
	for _, m := range w.members {
		if m.agent != nil {
			m.agent.stop()
		}
		for _, a := range m.former {
			a.stop()
		}
	}
	synctest.Wait()
}

func (m *member) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// alive reports whether the member's agent runs and reaches the broker.
func (m *member) alive() bool { return m.agent != nil && !m.agent.stopped && !m.cutOff }

func describe(obj client.Object) string {
	switch o := obj.(type) {
	case *mcsv1beta1.ServiceImport:
		return fmt.Sprintf("%v %v %v clusters %v", o.Spec.Type, o.Spec.IPs, o.Spec.IPFamilies, o.Status.Clusters)
	case *v1alpha1.ExportRecord:
		return fmt.Sprintf("%v %v %d ports, exported %s", o.Spec.Type, o.Spec.IPFamilies, len(o.Spec.Ports), o.Spec.ExportedAt.Format(time.TimeOnly))
	case *mcsv1beta1.ServiceExport:
		var out []string
		for _, c := range o.Status.Conditions {
			out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
		return strings.Join(out, " ")
	case *corev1.Service:
		return fmt.Sprintf("%v %v", o.Spec.IPFamilies, o.Spec.ClusterIPs)
	}
	return ""
}
