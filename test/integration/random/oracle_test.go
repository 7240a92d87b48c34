package random_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
)

// importView is the part of an import that the test compares.
type importView struct {
	Type      mcsv1beta1.ServiceImportType
	Ports     []mcsv1beta1.ServicePort
	Affinity  corev1.ServiceAffinity
	Labels    map[string]string
	Clusters  []string
	Endpoints []string // "cluster address ready [ports]", sorted
}

// compare compares every cluster's imports with the merge of all clusters' exports. It reads the
// exports directly from the API servers, so the expectation depends on no broker, cache or watch.
// While a member is dead, its part is what it published last.
func (w *workload) compare() error {
	exported := map[string]map[types.NamespacedName]exports.Input{}
	for _, m := range w.fleet.Members {
		if m == w.dead {
			exported[m.ID] = w.last.exports
			continue
		}
		var err error
		if exported[m.ID], err = w.exportsOf(m); err != nil {
			return err
		}
	}
	records, err := w.recordsOf(exported)
	if err != nil {
		return err
	}
	for _, m := range w.fleet.Members {
		if m == w.dead {
			continue // no agent updates its imports
		}
		got, specs, err := w.importsOf(m)
		if err != nil {
			return err
		}
		want := map[string]importView{}
		for key, recs := range records {
			want[key.String()] = w.expected(m.ID, key, recs, exported, specs[key.String()])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("imports of %s (-want +got):\n%.3000s", m.ID, diff)
		}
		if err := w.checkConditions(m, records); err != nil {
			return err
		}
	}
	return w.checkAggregates(records)
}

// recordsOf returns the records of exported services, by service.
func (w *workload) recordsOf(
	exported map[string]map[types.NamespacedName]exports.Input,
) (map[types.NamespacedName][]*v1alpha1.ExportRecord, error) {
	ages, err := w.ages()
	if err != nil {
		return nil, err
	}
	records := map[types.NamespacedName][]*v1alpha1.ExportRecord{}
	for cluster, inputs := range exported {
		for key, in := range inputs {
			record := exports.Decide(in).Record
			if record == nil {
				continue
			}
			// A member that was dead for long makes its exports younger.
			if at := ages[record.Name]; w.hasDied[cluster] && record.Spec.ExportedAt.Before(&at) {
				record.Spec.ExportedAt = at
			}
			records[key] = append(records[key], record)
		}
	}
	return records, nil
}

// ages returns the ages of the exports that the records on the broker have, by the names of the
// records.
func (w *workload) ages() (map[string]metav1.Time, error) {
	var published v1alpha1.ExportRecordList
	if err := w.fleet.Admin.List(context.Background(), &published, client.InNamespace(objects.DefaultNamespace)); err != nil {
		return nil, err
	}
	out := map[string]metav1.Time{}
	for i := range published.Items {
		out[published.Items[i].Name] = published.Items[i].Spec.ExportedAt
	}
	return out, nil
}

// expected returns what one cluster should have imported of a service. spec is the spec of its
// import as it is: what the living exporters of a service once decided stays, whatever their
// readiness.
func (w *workload) expected(
	cluster string, key types.NamespacedName, recs []*v1alpha1.ExportRecord,
	exported map[string]map[types.NamespacedName]exports.Input, spec *mcsv1beta1.ServiceImportSpec,
) importView {
	stale := w.stale()
	mode := merge.Merge(merge.Demote(recs, stale)).Mode
	in := imports.Input{
		Settings: imports.Settings{ClusterID: cluster, Families: []corev1.IPFamily{corev1.IPv4Protocol}},
		Service:  key, Records: recs, IsNodeAddress: func(netip.Addr) bool { return false }, Stale: stale, Demoted: stale,
		WhyNot: func(string, netip.Addr) string { return "" }, Accepts: anyAddress, BlockOwner: func(netip.Addr) string { return "" },
	}
	if spec != nil {
		in.Existing = &mcsv1beta1.ServiceImport{Spec: *spec}
	}
	for _, r := range recs {
		id := string(r.Spec.ClusterID)
		switch {
		case id == cluster:
			in.Own = exported[id][key]
		case stale[id]:
			in.Slices = append(in.Slices, w.last.slices[key]...)
		default:
			in.Slices = append(in.Slices, exports.Slices(exported[id][key], mode)...)
		}
	}
	plan := imports.Decide(in)
	out := make([]discoveryv1.EndpointSlice, len(plan.Slices))
	for i, s := range plan.Slices {
		out[i] = *s
	}
	return viewOf(plan.Import, out)
}

func viewOf(si *mcsv1beta1.ServiceImport, items []discoveryv1.EndpointSlice) importView {
	v := importView{
		Type: si.Spec.Type, Ports: si.Spec.Ports, Affinity: si.Spec.SessionAffinity, Labels: si.Labels, Clusters: fleet.ClustersOf(si),
	}
	for _, s := range items {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, *p.Name)
		}
		slices.Sort(ports)
		for _, e := range s.Endpoints {
			source := s.Labels[mcsv1beta1.LabelSourceCluster]
			v.Endpoints = append(v.Endpoints, fmt.Sprintf("%s %v %v %v", source, e.Addresses, *e.Conditions.Ready, ports))
		}
	}
	slices.Sort(v.Endpoints)
	return v
}

func anyAddress(netip.Addr) bool { return true }

// exportsOf reads the exports of a cluster.
func (w *workload) exportsOf(m *fleet.Member) (map[types.NamespacedName]exports.Input, error) {
	out := map[types.NamespacedName]exports.Input{}
	for _, ns := range w.namespaces {
		var listed mcsv1beta1.ServiceExportList
		var services corev1.ServiceList
		var sources discoveryv1.EndpointSliceList
		for _, list := range []client.ObjectList{&listed, &services, &sources} {
			if err := m.Client.List(context.Background(), list, client.InNamespace(ns)); err != nil {
				return nil, err
			}
		}
		for i := range listed.Items {
			in := exports.Input{
				Settings: exports.Settings{ClusterID: m.ID, BrokerNamespace: objects.DefaultNamespace, UseClusterSetIP: true},
				Export:   &listed.Items[i], RegionOf: func(string) string { return "" },
				Addressing: exports.Addressing{Accepts: anyAddress, Offer: func(corev1.IPFamily, netip.Addr) (netip.Addr, error) {
					return netip.MustParseAddr("243.0.0.1"), nil // which one is not compared
				}},
			}
			for j := range services.Items {
				if services.Items[j].Name == in.Export.Name {
					in.Service = &services.Items[j]
				}
			}
			for j := range sources.Items {
				if sources.Items[j].Labels[discoveryv1.LabelServiceName] == in.Export.Name {
					in.Slices = append(in.Slices, &sources.Items[j])
				}
			}
			out[client.ObjectKeyFromObject(in.Export)] = in
		}
	}
	return out, nil
}

// importsOf reads the imports of a cluster, and their specs.
func (w *workload) importsOf(m *fleet.Member) (map[string]importView, map[string]*mcsv1beta1.ServiceImportSpec, error) {
	out, specs := map[string]importView{}, map[string]*mcsv1beta1.ServiceImportSpec{}
	for _, ns := range w.namespaces {
		var list mcsv1beta1.ServiceImportList
		var all discoveryv1.EndpointSliceList
		if err := m.Client.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			return nil, nil, err
		}
		if err := m.Client.List(context.Background(), &all, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
			return nil, nil, err
		}
		byService := map[string][]discoveryv1.EndpointSlice{}
		for _, s := range all.Items {
			name := s.Labels[mcsv1beta1.LabelServiceName]
			byService[name] = append(byService[name], s)
		}
		for i := range list.Items {
			si := &list.Items[i]
			out[client.ObjectKeyFromObject(si).String()] = viewOf(si, byService[si.Name])
			specs[client.ObjectKeyFromObject(si).String()] = &si.Spec
			delete(byService, si.Name)
		}
		for name := range byService {
			return nil, nil, fmt.Errorf("%s has slices of %s/%s without an import", m.ID, ns, name)
		}
	}
	return out, specs, nil
}

// checkConditions checks the conditions of a cluster's exports.
func (w *workload) checkConditions(m *fleet.Member, records map[types.NamespacedName][]*v1alpha1.ExportRecord) error {
	exported, err := w.exportsOf(m)
	if err != nil {
		return err
	}
	for key, in := range exported {
		conditions := in.Export.Status.Conditions
		conflict := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if in.Service == nil {
			valid := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionValid))
			if valid == nil || valid.Reason != string(mcsv1beta1.ServiceExportReasonNoService) || conflict != nil {
				return fmt.Errorf("%s: export %s without a Service has the conditions %+v", m.ID, key, conditions)
			}
			continue
		}
		merged := merge.Merge(merge.Demote(records[key], w.stale()))
		status, reason, message := merged.Condition()
		if conflict == nil || conflict.Status != status || conflict.Reason != reason || conflict.Message != message {
			return fmt.Errorf("%s: export %s has the condition %+v, want %s %s", m.ID, key, conflict, reason, message)
		}
		ready := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionReady))
		leftOut, out := merged.LeftOut[m.ID]
		if ready == nil || (ready.Status == metav1.ConditionTrue) == out || out && ready.Reason != string(leftOut) {
			return fmt.Errorf("%s: export %s has the condition %+v, left out: %q", m.ID, key, ready, leftOut)
		}
	}
	return nil
}

// checkAggregates checks that the broker has exactly one aggregate per exported service, with the
// right clusters. The entry of a dead cluster stays as it was.
func (w *workload) checkAggregates(records map[types.NamespacedName][]*v1alpha1.ExportRecord) error {
	for _, ns := range w.namespaces {
		var list mcsv1beta1.ServiceImportList
		err := w.fleet.Admin.List(context.Background(), &list, client.InNamespace(objects.DefaultNamespace),
			client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns})
		if err != nil {
			return err
		}
		seen := map[types.NamespacedName]bool{}
		for i := range list.Items {
			key, _ := objects.ServiceOf(&list.Items[i])
			seen[key] = true
			if len(records[key]) == 0 {
				return fmt.Errorf("the aggregate of %s is left over", key)
			}
			isDead := func(cluster string) bool { return w.stale()[cluster] }
			clusters := slices.DeleteFunc(fleet.ClustersOf(&list.Items[i]), isDead)
			merged := merge.Merge(merge.Demote(records[key], w.stale()))
			if want := slices.DeleteFunc(slices.Sorted(slices.Values(merged.Clusters)), isDead); !slices.Equal(clusters, want) {
				return fmt.Errorf("the aggregate of %s lists %v, want %v", key, clusters, want)
			}
		}
		for key := range records {
			if key.Namespace == ns && !seen[key] {
				return fmt.Errorf("there is no aggregate of %s", key)
			}
		}
	}
	return nil
}
