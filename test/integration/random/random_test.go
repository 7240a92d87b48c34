// Package random_test lets three clusters export, change and withdraw hundreds of services in random order while agents are
// restarted, and then compares every import with what the exports say it should be.
package random_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	namespaces = 3
	names      = 100
	steps      = 1200
)

func TestMain(m *testing.M) {
	// One long history on real servers: a shorter one cannot be replayed on state that has moved on.
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}

// world is the clusterset under test and what the test has put into it.
type world struct {
	t          *testing.T
	fleet      *fleet.Fleet
	namespaces []string
	services   map[string]bool // "cluster/namespace/name" that have a Service
	exports    map[string]bool // … and a ServiceExport
}

// TestRandomHistories: after quiet, every cluster's imports equal the merge of what is exported, and a further minute brings
// no writes.
func TestRandomHistories(t *testing.T) {
	cps := harness.Clusters(t, 3)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: t, fleet: f, services: map[string]bool{}, exports: map[string]bool{}}
		for range namespaces {
			ns := "r-" + rand.String(6)
			w.namespaces = append(w.namespaces, ns)
			for _, m := range f.Members {
				m.Namespace(t, ns)
			}
		}
		actions := map[string]func(*rapid.T){
			"service":   w.toggleService,
			"export":    w.toggleExport,
			"change":    w.changeService,
			"endpoints": w.changeEndpoints,
			"metadata":  w.changeExport,
			"restart":   w.restartAgent,
		}
		// Exports twice as often: they are what this is about. Not rapid's Repeat, which may stop after a few.
		often := []string{"service", "export", "export", "change", "endpoints", "metadata", "restart"}
		for range steps {
			actions[rapid.SampledFrom(often).Draw(rt, "action")](rt)
		}
		w.check()
	})
}

// pick draws a cluster and a service. The first ten names are drawn more often, so that clusters meet.
func (w *world) pick(rt *rapid.T) (m *fleet.Member, ns, name, key string) {
	m = rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	ns = rapid.SampledFrom(w.namespaces).Draw(rt, "namespace")
	limit := rapid.SampledFrom([]int{10, names}).Draw(rt, "among")
	name = fmt.Sprintf("svc-%d", rapid.IntRange(0, limit-1).Draw(rt, "service"))
	return m, ns, name, m.ID + "/" + ns + "/" + name
}

func (w *world) toggleService(rt *rapid.T) {
	m, ns, name, key := w.pick(rt)
	if w.services[key] {
		m.Delete(w.t, fleet.NewService(ns, name), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-abc"}})
		delete(w.services, key)
		return
	}
	headless := rapid.IntRange(0, 4).Draw(rt, "headless") == 0
	svc := fleet.NewService(ns, name, func(s *corev1.Service) {
		s.Spec.Ports = drawPorts(rt)
		if headless {
			s.Spec.ClusterIP = corev1.ClusterIPNone
		}
	})
	m.Serve(w.t, svc, drawAddresses(rt)...)
	w.services[key] = true
}

func (w *world) toggleExport(rt *rapid.T) {
	m, ns, name, key := w.pick(rt)
	if w.exports[key] {
		m.Unexport(w.t, ns, name)
		delete(w.exports, key)
		return
	}
	m.Export(w.t, ns, name)
	w.exports[key] = true
}

func (w *world) changeService(rt *rapid.T) {
	m, ns, name, key := w.pick(rt)
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
}

func (w *world) changeEndpoints(rt *rapid.T) {
	m, ns, name, key := w.pick(rt)
	if !w.services[key] {
		return
	}
	addresses, ready := drawAddresses(rt), rapid.Bool().Draw(rt, "ready")
	fleet.Update(w.t, m, ns, name+"-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}})
		}
	})
}

func (w *world) changeExport(rt *rapid.T) {
	m, ns, name, key := w.pick(rt)
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

// restartAgent happens now and then, in the middle of whatever the agent is doing.
func (w *world) restartAgent(rt *rapid.T) {
	m := rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	if rapid.IntRange(0, 19).Draw(rt, "now") != 0 {
		return
	}
	m.Stop()
	if err := m.Start(); err != nil {
		w.t.Fatal(err)
	}
}

func drawPorts(rt *rapid.T) []corev1.ServicePort {
	all := []corev1.ServicePort{fleet.Port("http", 80), fleet.Port("https", 443), fleet.Port("http", 8080), fleet.Port("web", 80), fleet.Port("", 80)}
	return rapid.SampledFrom([][]corev1.ServicePort{{all[0]}, {all[0], all[1]}, {all[1], all[0]}, {all[2]}, {all[3], all[1]}, {all[4]}}).Draw(rt, "ports")
}

func drawAddresses(rt *rapid.T) []string {
	var out []string
	for i := range rapid.IntRange(0, 3).Draw(rt, "endpoints") {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", rapid.IntRange(0, 200).Draw(rt, "net"), rapid.IntRange(0, 200).Draw(rt, "host"), i+1))
	}
	return out
}

func (w *world) check() {
	w.t.Helper()
	w.t.Logf("%d Services and %d ServiceExports in the end", len(w.services), len(w.exports))
	if len(w.services) < 50 || len(w.exports) < 50 {
		w.t.Fatal("too little happened for this to mean anything")
	}
	harness.Eventually(w.t, "imports are what the exports say", w.compare)
	before := w.everything()
	harness.Consistently(w.t, "nothing is written when all is quiet", time.Minute, func() error {
		time.Sleep(time.Second) // reading everything at every poll would be the only load there is
		if after := w.everything(); after != before {
			return fmt.Errorf("something was")
		}
		return nil
	})
	if err := w.compare(); err != nil {
		w.t.Errorf("after a quiet minute: %v", err)
	}
}

// everything is the versions of all objects agents write, but for the leases.
func (w *world) everything() string {
	w.t.Helper()
	out := ""
	for _, m := range w.fleet.Members {
		for _, list := range []client.ObjectList{&mcsv1beta1.ServiceImportList{}, &mcsv1beta1.ServiceExportList{}, &discoveryv1.EndpointSliceList{}} {
			versions, err := listVersions(m.Client, list)
			if err != nil {
				w.t.Fatal(err)
			}
			out += m.ID + versions + "\n"
		}
	}
	return out
}
