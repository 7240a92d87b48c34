package sim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

func doReplaceService(w *world, m *member, service string, random uint64) {
	published := w.isCurrent(m, service)
	doDeleteService(w, m, service, random)
	for range w.rng.IntN(8) {
		w.step()
	}
	m.serve(service, random)
	if published && lookup[*v1alpha1.ExportRecord](w.broker, brokerNamespace, objects.RecordName(m.key(service), m.id)) == nil {
		w.fail(ruleReplaced, "%s withdrew %s while its Service was replaced", m.id, service)
	}
}

// isCurrent reports whether a member has published its export of a service and nothing is under
// way: an agent may withdraw what it did not see restored or exported again.
func (w *world) isCurrent(m *member, service string) bool {
	blind := func(i *informer) bool { return i.frozen || i.mustList || i.epoch != i.view.server.epoch || i.hasWork() }
	return m.alive() && len(w.ready.items)+len(w.delayed.items) == 0 &&
		!slices.ContainsFunc(m.agent.local.order, blind) && !slices.ContainsFunc(m.agent.broker.order, blind) &&
		lookup[*corev1.Service](m.server, namespace, service) != nil &&
		lookup[*mcsv1beta1.ServiceExport](m.server, namespace, service) != nil &&
		lookup[*v1alpha1.ExportRecord](w.broker, brokerNamespace, objects.RecordName(m.key(service), m.id)) != nil
}
