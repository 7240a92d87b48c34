package random_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// publication is what a member published last.
type publication struct {
	exports map[types.NamespacedName]exports.Input
	slices  map[types.NamespacedName][]*discoveryv1.EndpointSlice
}

// publicationOf returns what a member publishes. All imports must be as the model says.
func (w *workload) publicationOf(m *fleet.Member) (publication, error) {
	p := publication{slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	exported := map[string]map[types.NamespacedName]exports.Input{}
	for _, each := range w.fleet.Members {
		var err error
		if exported[each.ID], err = w.exportsOf(each); err != nil {
			return p, err
		}
	}
	p.exports = exported[m.ID]
	records, err := w.recordsOf(exported)
	if err != nil {
		return p, err
	}
	for key, in := range p.exports {
		if merged := merge.Merge(records[key]); slices.Contains(merged.Clusters, m.ID) {
			p.slices[key] = exports.Slices(in, merged.Mode)
		}
	}
	return p, nil
}

// stale returns the clusters that are stale and demoted.
func (w *workload) stale() map[string]bool {
	if w.dead == nil {
		return nil
	}
	return map[string]bool{w.dead.ID: true}
}

// kill stops the agent of a member.
func (w *workload) kill(m *fleet.Member) {
	m.Stop()
	w.dead, w.deadSince, w.hasDied[m.ID], w.touched = m, time.Now(), true, map[string]bool{}
}

// killMember kills a member in one of ten draws, whatever its agent is doing. At most one member is
// dead at a time.
func (w *workload) killMember(rt *rapid.T) {
	m := rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	if w.dead == nil && rapid.IntRange(0, 9).Draw(rt, "now") == 0 {
		w.kill(m)
	}
}

// revive starts the agent of the dead member again if its lease has expired. With wait it waits for
// that.
func (w *workload) revive(wait bool) {
	w.t.Helper()
	if w.dead == nil {
		return
	}
	left := time.Until(w.deadSince.Add(w.dead.Agent.LeaseDuration + 2*w.dead.Agent.RenewEvery))
	if left > 0 && !wait {
		return
	}
	time.Sleep(left) // a lease expires by time only
	w.start(w.dead)
	w.dead = nil
}

// checkDeath checks what the others hold while a member is dead, and after its return. While it is
// dead, services change in all clusters and the other agents are restarted.
func (w *workload) checkDeath(rt *rapid.T) {
	w.t.Helper()
	harness.Eventually(w.t, "imports are the merge of the exports", w.compare)
	dead := rapid.SampledFrom(w.fleet.Members).Draw(rt, "dead")
	living := slices.DeleteFunc(slices.Clone(w.fleet.Members), func(m *fleet.Member) bool { return m == dead })
	before := w.serving(living)
	var err error
	if w.last, err = w.publicationOf(dead); err != nil {
		w.t.Fatal(err)
	}
	w.kill(dead)
	harness.Eventually(w.t, "the others hold what they should without "+dead.ID, w.compare)
	w.checkReplaced(before, w.serving(living))

	for _, m := range living {
		w.restart(m)
	}
	harness.Consistently(w.t, "a restart changes nothing", dead.Agent.LeaseDuration, func() error {
		time.Sleep(500 * time.Millisecond) // polling without a pause would load the machine
		return w.compare()
	})
	w.run(rt, stepsDuring)
	harness.Eventually(w.t, "the others hold what they should after changes without "+dead.ID, w.compare)

	ports := w.serving(living)
	decided := w.decided(living, dead.ID, ports)
	w.start(dead)
	w.dead = nil
	harness.Eventually(w.t, "imports are the merge of the exports after the return of "+dead.ID, w.compare)
	w.t.Logf("%s returned: %d imports must stay as they were", dead.ID, len(decided))
	if diff := cmp.Diff(decided, w.decided(living, dead.ID, ports)); diff != "" {
		w.t.Fatalf("the return of %s changed services that did not change there (-before +after):\n%.3000s", dead.ID, diff)
	}
}

// servedPort is a port of a service in an importing cluster. All endpoints here are IPv4.
type servedPort struct{ importer, service, port string }

// served are the clusters with ready endpoints of each port.
type served map[servedPort][]string

// serving reads which clusters have ready endpoints in the imports of these members.
func (w *workload) serving(importers []*fleet.Member) served {
	w.t.Helper()
	out := served{}
	for _, m := range importers {
		for _, ns := range w.namespaces {
			var all discoveryv1.EndpointSliceList
			if err := m.Client.List(context.Background(), &all, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
				w.t.Fatal(err)
			}
			for i := range all.Items {
				s := &all.Items[i]
				if !reachable.HasReadyEndpoint(s) {
					continue
				}
				for _, p := range s.Ports {
					key := servedPort{m.ID, ns + "/" + s.Labels[mcsv1beta1.LabelServiceName], ptr.Deref(p.Name, "")}
					out[key] = append(out[key], s.Labels[mcsv1beta1.LabelSourceCluster])
				}
			}
		}
	}
	return out
}

// checkReplaced checks, without the model, that no port has endpoints of the dead cluster where
// another one serves it, and that no service has lost its last endpoints. It also checks that the
// history had ports of both kinds.
func (w *workload) checkReplaced(before, now served) {
	w.t.Helper()
	services := map[servedPort]bool{}
	for port, clusters := range now {
		services[servedPort{importer: port.importer, service: port.service}] = true
		if slices.Contains(clusters, w.dead.ID) && slices.ContainsFunc(clusters, func(c string) bool { return c != w.dead.ID }) {
			w.t.Errorf("%+v has endpoints of %v, though %s is dead", port, clusters, w.dead.ID)
		}
	}
	dropped, kept := 0, 0
	for port, clusters := range before {
		if !services[servedPort{importer: port.importer, service: port.service}] {
			w.t.Errorf("%s had endpoints of %s from %v before %s died, and has none:\n%s", port.importer, port.service, clusters, w.dead.ID,
				w.describe(port.importer, port.service))
		}
		switch {
		case !slices.Contains(clusters, w.dead.ID):
		case slices.Contains(now[port], w.dead.ID):
			kept++
		default:
			dropped++
		}
	}
	w.t.Logf("%s died: its endpoints of %d ports were dropped, those of %d ports were kept", w.dead.ID, dropped, kept)
	if dropped == 0 || kept == 0 {
		w.t.Error("too few ports for a meaningful check")
	}
}

// describe returns what a member has imported of a service, and what is recorded about it.
func (w *workload) describe(importer, service string) string {
	w.t.Helper()
	var out strings.Builder
	for _, m := range w.fleet.Members {
		if m.ID == importer {
			views, _, err := w.importsOf(m)
			fmt.Fprintf(&out, "import %+v (%v)\n", views[service], err)
		}
	}
	var records v1alpha1.ExportRecordList
	err := w.fleet.Admin.List(context.Background(), &records, client.InNamespace(objects.DefaultNamespace))
	for _, r := range records.Items {
		if r.Spec.ServiceNamespace+"/"+r.Spec.ServiceName == service {
			fmt.Fprintf(&out, "record %+v\n", r.Spec)
		}
	}
	var published discoveryv1.EndpointSliceList
	err = errors.Join(err, w.fleet.Admin.List(context.Background(), &published, client.InNamespace(objects.DefaultNamespace)))
	for _, s := range published.Items {
		if of, ok := objects.ServiceOf(&s); ok && of.String() == service {
			text, _ := json.Marshal([]any{s.Ports, s.Endpoints}) // they always marshal
			fmt.Fprintf(&out, "slice %s %s\n", s.Name, text)
		}
	}
	fmt.Fprintf(&out, "%v", err)
	return out.String()
}

// decisions are the types and ports of imports, by importing cluster and service.
type decisions map[string]mcsv1beta1.ServiceImportSpec

// decided returns the decisions in the imports of these members about services that were not
// changed in the cluster of the dead member, and that others serve: without ready endpoints of
// theirs the dead member keeps its precedence.
func (w *workload) decided(importers []*fleet.Member, dead string, ports served) decisions {
	w.t.Helper()
	others := map[string]bool{}
	for port, clusters := range ports {
		if slices.ContainsFunc(clusters, func(c string) bool { return c != dead }) {
			others[port.service] = true
		}
	}
	out := decisions{}
	for _, m := range importers {
		_, specs, err := w.importsOf(m)
		if err != nil {
			w.t.Fatal(err)
		}
		for service, spec := range specs {
			if !w.touched[service] && others[service] {
				out[m.ID+": "+service] = mcsv1beta1.ServiceImportSpec{Type: spec.Type, Ports: spec.Ports}
			}
		}
	}
	return out
}
