// Package random_test exports, changes and unexports hundreds of services of three clusters in
// random order while agents are restarted, die and return. It compares every import with the merge
// of the exports, while a member is dead, after its return and in the end.
package random_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	namespaces = 3
	names      = 100
	hotNames   = 10 // those that are drawn more often
	// Steps before a member dies, while it is dead, and after its return.
	stepsBefore, stepsDuring, stepsAfter = 200, 150, 550
)

func TestMain(m *testing.M) {
	// One long history: rapid cannot shrink it, because the servers keep the state of the failed run.
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}

// workload is the clusterset under test and the objects that the test has created in it.
type workload struct {
	t          *testing.T
	fleet      *fleet.Fleet
	namespaces []string
	services   map[string]bool // keys "cluster/namespace/name" that have a Service
	exports    map[string]bool // keys that have a ServiceExport

	dead      *fleet.Member // the member whose agent is stopped, nil if all run
	deadSince time.Time
	hasDied   map[string]bool // by cluster
	last      publication     // of the dead member
	// touched are the services "namespace/name" that were changed in the dead member's cluster.
	touched map[string]bool
	// mayDie reports whether members die and return at any step.
	mayDie bool
}

// TestRandomHistories checks that every cluster's imports become the merge of all exports, also
// while a member is dead and after its return, and that the agents then write nothing for a minute.
func TestRandomHistories(t *testing.T) {
	f := startFleet(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := &workload{t: t, fleet: f, services: map[string]bool{}, exports: map[string]bool{}, hasDied: map[string]bool{}}
		for range namespaces {
			ns := "r-" + rand.String(6)
			w.namespaces = append(w.namespaces, ns)
			for _, m := range f.Members {
				m.Namespace(t, ns)
			}
		}
		w.populate(rt)
		w.run(rt, stepsBefore)
		w.checkDeath(rt)
		w.mayDie = true
		w.run(rt, stepsAfter)
		w.revive(true)
		w.check()
	})
}

// startFleet returns a clusterset of three members. What is deleted while an agent does not run is
// held for a second only: the model does not know such holds.
func startFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	cps := harness.Clusters(t, 3)
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Members {
		m.Agent.WithdrawalHold = time.Second
	}
	t.Cleanup(f.Stop)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	return f
}

// populate makes all clusters export the services that are drawn more often, so that many services
// have several exporters with ready endpoints when a member dies.
func (w *workload) populate(rt *rapid.T) {
	for i, m := range w.fleet.Members {
		for _, ns := range w.namespaces {
			for j := range hotNames {
				name := fmt.Sprintf("svc-%d", j)
				key := m.ID + "/" + ns + "/" + name
				w.createService(rt, m, ns, name, key, fmt.Sprintf("10.91.%d.%d", i, j+1))
				w.toggleExport(m, ns, name, key)
			}
		}
	}
}

// run takes steps of the history.
func (w *workload) run(rt *rapid.T, steps int) {
	actions := map[string]func(*rapid.T){
		"service":   w.toggleService,
		"export":    w.changeExported,
		"change":    w.changeService,
		"endpoints": w.changeEndpoints,
		"metadata":  w.changeExport,
		"restart":   w.restartAgent,
		"die":       w.killMember,
	}
	// Exports are drawn twice as often, because they are under test. rapid's Repeat is not used: it
	// may stop after a few steps.
	weighted := []string{"service", "export", "export", "change", "endpoints", "metadata", "restart"}
	if w.mayDie {
		weighted = append(weighted, "die")
	}
	for range steps {
		actions[rapid.SampledFrom(weighted).Draw(rt, "action")](rt)
		if w.mayDie {
			w.revive(false)
		}
	}
}

// drawService draws a cluster and a service. The first ten names are drawn more often, so that
// several clusters export the same service.
func (w *workload) drawService(rt *rapid.T) (m *fleet.Member, ns, name, key string) {
	m = rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	ns = rapid.SampledFrom(w.namespaces).Draw(rt, "namespace")
	limit := rapid.SampledFrom([]int{hotNames, names}).Draw(rt, "among")
	name = fmt.Sprintf("svc-%d", rapid.IntRange(0, limit-1).Draw(rt, "service"))
	if m == w.dead {
		w.touched[ns+"/"+name] = true
	}
	return m, ns, name, m.ID + "/" + ns + "/" + name
}

func (w *workload) toggleService(rt *rapid.T) {
	m, ns, name, key := w.drawService(rt)
	if w.services[key] {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-abc"}}
		m.Delete(w.t, fleet.NewService(ns, name), slice)
		delete(w.services, key)
		return
	}
	w.createService(rt, m, ns, name, key)
}

func (w *workload) createService(rt *rapid.T, m *fleet.Member, ns, name, key string, addresses ...string) {
	headless := rapid.IntRange(0, 4).Draw(rt, "headless") == 0
	svc := fleet.NewService(ns, name, func(s *corev1.Service) {
		s.Spec.Ports = drawPorts(rt)
		if headless {
			s.Spec.ClusterIP = corev1.ClusterIPNone
		}
	})
	m.Serve(w.t, svc, append(addresses, drawAddresses(rt)...)...)
	w.services[key] = true
}

func (w *workload) changeExported(rt *rapid.T) { w.toggleExport(w.drawService(rt)) }

func (w *workload) toggleExport(m *fleet.Member, ns, name, key string) {
	if w.exports[key] {
		m.Unexport(w.t, ns, name)
		delete(w.exports, key)
		return
	}
	m.Export(w.t, ns, name)
	w.exports[key] = true
}

func (w *workload) changeService(rt *rapid.T) {
	m, ns, name, key := w.drawService(rt)
	if !w.services[key] {
		return
	}
	ports, sticky := drawPorts(rt), rapid.Bool().Draw(rt, "sticky")
	fleet.Update(w.t, m, ns, name, &corev1.Service{}, func(s *corev1.Service) {
		s.Spec.Ports, s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = ports, corev1.ServiceAffinityNone, nil
		if sticky {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
	})
	// The EndpointSlice controller of a cluster would do this.
	changed := fleet.NewSlice(fleet.NewService(ns, name, func(s *corev1.Service) { s.Spec.Ports = ports }), "abc")
	fleet.Update(w.t, m, ns, changed.Name, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) { s.Ports = changed.Ports })
}

func (w *workload) changeEndpoints(rt *rapid.T) {
	m, ns, name, key := w.drawService(rt)
	if !w.services[key] {
		return
	}
	addresses, ready := drawAddresses(rt), rapid.Bool().Draw(rt, "ready")
	fleet.Update(w.t, m, ns, name+"-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)},
			})
		}
	})
}

func (w *workload) changeExport(rt *rapid.T) {
	m, ns, name, key := w.drawService(rt)
	if !w.exports[key] {
		return
	}
	colour := rapid.SampledFrom([]string{"red", "green", ""}).Draw(rt, "colour")
	fleet.Update(w.t, m, ns, name, &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels = nil
		if colour != "" {
			e.Spec.ExportedLabels = map[string]string{"colour": colour}
		}
	})
}

// restartAgent restarts an agent in one of twenty draws, whatever it is doing.
func (w *workload) restartAgent(rt *rapid.T) {
	m := rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	if rapid.IntRange(0, 19).Draw(rt, "now") != 0 || m == w.dead {
		return
	}
	w.restart(m)
}

func (w *workload) restart(m *fleet.Member) {
	w.t.Helper()
	m.Stop()
	w.start(m)
}

func (w *workload) start(m *fleet.Member) {
	w.t.Helper()
	if err := m.Start(); err != nil {
		w.t.Fatal(err)
	}
}

func drawPorts(rt *rapid.T) []corev1.ServicePort {
	http, https, alternative := fleet.Port("http", 80), fleet.Port("https", 443), fleet.Port("http", 8080)
	web, unnamed := fleet.Port("web", 80), fleet.Port("", 80)
	return rapid.SampledFrom([][]corev1.ServicePort{
		{http}, {http, https}, {https, http}, {alternative}, {web, https}, {unnamed},
	}).Draw(rt, "ports")
}

func drawAddresses(rt *rapid.T) []string {
	var out []string
	for i := range rapid.IntRange(0, 3).Draw(rt, "endpoints") {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", rapid.IntRange(0, 90).Draw(rt, "net"), rapid.IntRange(0, 200).Draw(rt, "host"), i+1))
	}
	return out
}

// check compares the imports with the exports, now and after a minute without writes.
func (w *workload) check() {
	w.t.Helper()
	w.t.Logf("%d Services and %d ServiceExports in the end", len(w.services), len(w.exports))
	if len(w.services) < 50 || len(w.exports) < 50 {
		w.t.Fatal("too few services and exports for a meaningful comparison")
	}
	harness.Eventually(w.t, "imports are the merge of the exports", w.compare)
	harness.Eventually(w.t, "agents that started last come to rest", w.rest)
	before := w.agentObjects()
	harness.Consistently(w.t, "nothing is written when nothing changes", time.Minute, func() error {
		time.Sleep(time.Second) // polling without a pause would load the machine
		if diff := cmp.Diff(before, w.agentObjects()); diff != "" {
			return fmt.Errorf("objects were written: %s", diff)
		}
		return nil
	})
	if err := w.compare(); err != nil {
		w.t.Errorf("after a minute without changes: %v", err)
	}
}

// rest returns an error if an object is written within a few seconds: an agent that has just
// started writes nothing before it holds its lease.
func (w *workload) rest() error {
	before := w.agentObjects()
	time.Sleep(3 * w.fleet.Members[0].Agent.RenewEvery)
	if diff := cmp.Diff(before, w.agentObjects()); diff != "" {
		return fmt.Errorf("objects are still written: %s", diff)
	}
	return w.compare()
}

// agentObjects returns the versions of all objects that agents write, except leases, by name.
func (w *workload) agentObjects() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, m := range w.fleet.Members {
		for _, list := range []client.ObjectList{
			&mcsv1beta1.ServiceImportList{}, &mcsv1beta1.ServiceExportList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{},
		} {
			w.addVersions(out, m.ID, m.Client, list)
		}
	}
	// The broker is on a member, whose ServiceImports and EndpointSlices include those of the broker.
	w.addVersions(out, "broker", w.fleet.Admin, &v1alpha1.ExportRecordList{})
	return out
}

// addVersions adds the resourceVersions of all objects of a kind.
func (w *workload) addVersions(out map[string]string, where string, c client.Client, list client.ObjectList) {
	w.t.Helper()
	if err := c.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err == nil {
			out[fmt.Sprintf("%s: %T %s/%s", where, obj, o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
