package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// checkConverged compares the broker and all imports with what is exported now. The expectation
// comes from the exporters' own clusters and the merge rules, not from the agents' decisions.
func (w *world) checkConverged() {
	for _, service := range w.services {
		records := w.records(service)
		w.checkRecords(service, records)
		merged := merge.Merge(records)
		w.checkAggregate(service, merged)
		vips := map[corev1.IPFamily]string{}
		for _, m := range w.members {
			if m.deadSince.IsZero() {
				w.checkImported(m, service, merged, records, vips)
				w.checkConditions(m, service, merged)
			}
		}
	}
}

// checkRecords checks that the broker has the records of exactly the services that are exported. A
// dead member's record stays as it was.
func (w *world) checkRecords(service string, records []*v1alpha1.ExportRecord) {
	for _, m := range w.members {
		if !m.deadSince.IsZero() {
			continue
		}
		svc := lookup[*corev1.Service](m.server, namespace, service)
		exported := svc != nil && lookup[*mcsv1beta1.ServiceExport](m.server, namespace, service) != nil
		i := slices.IndexFunc(records, func(r *v1alpha1.ExportRecord) bool { return string(r.Spec.ClusterID) == m.id })
		switch {
		case exported != (i >= 0):
			w.fail(ruleConverge, "%s exports %s: %v; the broker has its record: %v", m.id, service, exported, i >= 0)
		case exported && !sameOffer(svc, &records[i].Spec):
			w.fail(ruleConverge, "the record of %s from %s is out of date", service, m.id)
		}
	}
}

func sameOffer(svc *corev1.Service, spec *v1alpha1.ExportRecordSpec) bool {
	headless := svc.Spec.ClusterIP == corev1.ClusterIPNone
	return headless == (spec.Type == mcsv1beta1.Headless) && slices.Equal(svc.Spec.IPFamilies, spec.IPFamilies) &&
		slices.EqualFunc(svc.Spec.Ports, spec.Ports, func(a corev1.ServicePort, b v1alpha1.ServicePort) bool {
			return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol
		})
}

func (w *world) checkAggregate(service string, merged merge.Result) {
	si := lookup[*mcsv1beta1.ServiceImport](w.broker, brokerNamespace, service+"."+namespace)
	if (si == nil) != merged.Empty() && !w.hasDead() {
		w.fail(ruleConverge, "%s has %d exporters; its aggregate exists: %v", service, len(merged.Clusters), si != nil)
		return
	}
	if si == nil {
		return
	}
	if clusters := slices.Sorted(slices.Values(clustersOf(si))); !slices.Equal(clusters, slices.Sorted(slices.Values(merged.Clusters))) &&
		!w.hasDead() {
		w.fail(ruleConverge, "the aggregate of %s lists %v, want %v", service, clusters, merged.Clusters)
	}
	if si.Spec.Type != merged.Spec.Type && !w.hasDead() {
		w.fail(ruleConverge, "the aggregate of %s is %s, want %s", service, si.Spec.Type, merged.Spec.Type)
	}
}

func (w *world) hasDead() bool {
	return slices.ContainsFunc(w.members, func(m *member) bool { return !m.deadSince.IsZero() })
}

func clustersOf(si *mcsv1beta1.ServiceImport) []string {
	var out []string
	for _, c := range si.Status.Clusters {
		out = append(out, c.Cluster)
	}
	return out
}

func (w *world) checkImported(
	m *member, service string, merged merge.Result, records []*v1alpha1.ExportRecord, vips map[corev1.IPFamily]string,
) {
	si := lookup[*mcsv1beta1.ServiceImport](m.server, namespace, service)
	imported := m.imported(service)
	if (si == nil) != merged.Empty() {
		w.fail(ruleConverge, "%s has %d exporters; %s imports it: %v", service, len(merged.Clusters), m.id, si != nil)
		return
	}
	if si == nil {
		if len(imported) > 0 || lookup[*corev1.Service](m.server, namespace, objects.DerivedServiceName(service)) != nil {
			w.fail(ruleConverge, "%s has slices or a derived Service of %s, which is not exported", m.id, service)
		}
		return
	}
	if h := w.checker.history(place{m, service}); h.annotated == string(si.UID) && si.Annotations[foreignKey] == "" {
		w.fail(ruleForeign, "the annotation of another controller on ServiceImport %s of %s is gone", service, m.id)
	}
	w.checkFamilies(m, si, records)
	w.checkImportAddresses(m, si, vips)
	if w.hasDead() {
		w.checkWithDead(m, si, imported, records)
		return
	}
	if si.Spec.Type != merged.Spec.Type || !slices.EqualFunc(si.Spec.Ports, merged.Spec.Ports, samePort) {
		w.fail(ruleConverge, "%s imports %s as %s with ports %v, want %s with %v", m.id, service, si.Spec.Type, si.Spec.Ports, merged.Spec.Type,
			merged.Spec.Ports)
	}
	if want := slices.Sorted(slices.Values(merged.Clusters)); !slices.Equal(clustersOf(si), want) {
		w.fail(ruleConverge, "the import of %s in %s lists %v, want %v", service, m.id, clustersOf(si), want)
	}
	got, want := endpointsOf(imported), w.wantedEndpoints(service, merged, si.Spec.IPFamilies)
	if !slices.Equal(got, want) {
		w.fail(ruleConverge, "%s has the endpoints %v of %s, want %v", m.id, got, service, want)
	}
}

func samePort(a, b mcsv1beta1.ServicePort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol
}

// checkFamilies checks that a service has the families of the export with precedence. With the data
// plane nftables the import has only those that have a clusterset IP.
func (w *world) checkFamilies(m *member, si *mcsv1beta1.ServiceImport, records []*v1alpha1.ExportRecord) {
	if w.hasDead() {
		return
	}
	oldest := slices.MinFunc(records, func(a, b *v1alpha1.ExportRecord) int {
		if c := a.Spec.ExportedAt.Compare(b.Spec.ExportedAt.Time); c != 0 {
			return c
		}
		if a.Spec.ClusterID < b.Spec.ClusterID {
			return -1
		}
		return 1
	})
	want := slices.DeleteFunc(slices.Clone(oldest.Spec.IPFamilies), func(f corev1.IPFamily) bool { return !slices.Contains(m.facts.Families, f) })
	if !slices.Equal(slices.Sorted(slices.Values(si.Spec.IPFamilies)), slices.Sorted(slices.Values(want))) && len(want) > 0 {
		w.fail(ruleFamilies, "%s in %s has the families %v, want %v as the oldest export (%s)", si.Name, m.id, si.Spec.IPFamilies, want,
			oldest.Spec.ClusterID)
	}
}

func (w *world) hasLivingExporter(si *mcsv1beta1.ServiceImport) bool {
	return slices.ContainsFunc(clustersOf(si), func(id string) bool { return w.memberOf(id).deadSince.IsZero() })
}

func (w *world) checkImportAddresses(m *member, si *mcsv1beta1.ServiceImport, vips map[corev1.IPFamily]string) {
	if si.Spec.Type == mcsv1beta1.Headless {
		return
	}
	if len(si.Spec.IPs) != len(si.Spec.IPFamilies) && w.hasLivingExporter(si) { // a dead one allocates no address
		w.fail(ruleConverge, "%s in %s has %v as addresses of %v", si.Name, m.id, si.Spec.IPs, si.Spec.IPFamilies)
		return
	}
	if objects.DataPlaneOf(m.membership.DataPlane).DerivesService {
		derived := lookup[*corev1.Service](m.server, namespace, objects.DerivedServiceName(si.Name))
		// It may have more: it keeps the ClusterIP of a family that the service lost.
		isMissing := func(ip string) bool { return !slices.Contains(derived.Spec.ClusterIPs, ip) }
		if derived == nil || slices.ContainsFunc(si.Spec.IPs, isMissing) {
			w.fail(ruleConverge, "%s in %s has the addresses %v, and its derived Service %v", si.Name, m.id, si.Spec.IPs, derived)
		}
		return
	}
	for i, ip := range si.Spec.IPs {
		family := si.Spec.IPFamilies[i]
		if other := vips[family]; other != "" && other != ip {
			w.fail(ruleConverge, "%s has the clusterset IPs %s and %s in different members", si.Name, other, ip)
		}
		vips[family] = ip
	}
}

// wantedEndpoints returns the endpoints of all clusters that take part, as endpointsOf does.
func (w *world) wantedEndpoints(service string, merged merge.Result, families []corev1.IPFamily) []string {
	var out []*discoveryv1.EndpointSlice
	for _, id := range merged.Clusters {
		from := w.memberOf(id)
		for _, family := range families {
			s := lookup[*discoveryv1.EndpointSlice](from.server, namespace, service+"-"+string(family))
			if s == nil {
				continue
			}
			s = s.DeepCopy()
			s.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: id}
			s.Ports = slices.DeleteFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return !merged.CarriesPort(id, *p.Name, *p.Protocol) })
			out = append(out, s)
		}
	}
	return endpointsOf(out)
}

// endpointsOf returns the endpoints of slices as text, sorted.
func endpointsOf(imported []*discoveryv1.EndpointSlice) []string {
	var out []string
	for _, s := range imported {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, *p.Name)
		}
		slices.Sort(ports)
		for _, e := range s.Endpoints {
			out = append(out, fmt.Sprintf("%s %s ready=%v %v", s.Labels[mcsv1beta1.LabelSourceCluster], e.Addresses[0],
				ptr.Deref(e.Conditions.Ready, true), ports))
		}
	}
	slices.Sort(out)
	return out
}

// published reports whether the broker has what a member offers: it may have died before.
func (w *world) published(service string, o offer) bool {
	found := false
	each(w.broker, func(s *discoveryv1.EndpointSlice) {
		found = found || s.Labels[mcsv1beta1.LabelServiceName] == service && s.Labels[mcsv1beta1.LabelSourceCluster] == o.member.id &&
			string(s.AddressType) == string(o.family) && hasPort(s, o.port.Name, o.port.Protocol) && reachable.HasReadyEndpoint(s)
	})
	return found
}

// livingDecideAfter is how long after its death, and after all other faults ended, the oldest
// exporter stops to govern, at the latest. The others list it in their Clusters.
const livingDecideAfter = verdictTime + 3*leaseDuration + 2*renewEvery

// checkWithDead checks an import while members are dead: each port is served, by the living if they
// can, and the living decide about the type.
func (w *world) checkWithDead(m *member, si *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice, records []*v1alpha1.ExportRecord) {
	for _, port := range si.Spec.Ports {
		for _, family := range si.Spec.IPFamilies {
			var offered, living []string
			for _, o := range w.offers(si.Name) {
				if o.family != family || o.port.Name != port.Name || o.port.Port != port.Port || o.port.Protocol != port.Protocol ||
					!slices.Contains(clustersOf(si), o.member.id) || !w.published(si.Name, o) {
					continue
				}
				offered = append(offered, o.member.id)
				if o.member.deadSince.IsZero() {
					living = append(living, o.member.id)
				}
			}
			got := servers(imported, family, port.Name, port.Protocol)
			switch {
			case len(living) > 0 && !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(living))):
				w.fail(ruleConverge, "port %s (%s) of %s in %s is served by %v, want the living %v", port.Name, family, si.Name, m.id, got, living)
			case len(living) == 0 && len(offered) > 0 && len(got) == 0:
				w.fail(ruleServed, "port %s (%s) of %s in %s is served by none, but was by %v", port.Name, family, si.Name, m.id, offered)
			}
		}
	}
	var living []*v1alpha1.ExportRecord
	for _, r := range records {
		from := w.memberOf(string(r.Spec.ClusterID))
		if from.deadSince.IsZero() {
			living = append(living, r)
		} else if time.Since(from.deadSince) < livingDecideAfter {
			return
		}
	}
	merged := merge.Merge(living)
	serves := func(o offer) bool { // one that the living leave out may still serve until another does
		return o.member.deadSince.IsZero() && slices.Contains(merged.Clusters, o.member.id)
	}
	if !merged.Empty() && merged.Spec.Type != si.Spec.Type && slices.ContainsFunc(w.offers(si.Name), serves) {
		w.fail(ruleLiving, "%s is %s in %s, though the living export it as %s", si.Name, si.Spec.Type, m.id, merged.Spec.Type)
	}
}

func (w *world) checkConditions(m *member, service string, merged merge.Result) {
	export := lookup[*mcsv1beta1.ServiceExport](m.server, namespace, service)
	if export == nil || w.hasDead() {
		return
	}
	valid := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	conflict := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
	if lookup[*corev1.Service](m.server, namespace, service) == nil {
		if valid == nil || valid.Reason != string(mcsv1beta1.ServiceExportReasonNoService) {
			w.fail(ruleConverge, "ServiceExport %s of %s without a Service has the condition %v", service, m.id, valid)
		}
		return
	}
	status, reason, _ := merged.Condition()
	if valid == nil || valid.Status != "True" || conflict == nil || conflict.Status != status || conflict.Reason != reason {
		w.fail(ruleConverge, "ServiceExport %s of %s has the conditions %v and %v, want %s", service, m.id, valid, conflict, reason)
	}
	ready := meta.IsStatusConditionTrue(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
	if _, leftOut := merged.LeftOut[m.id]; !ready && !leftOut {
		w.fail(ruleConverge, "ServiceExport %s of %s is not ready: %v", service, m.id, export.Status.Conditions)
	}
}
