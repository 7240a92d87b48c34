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
	"k8s.io/apimachinery/pkg/runtime"
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

// view is what can be compared of an import.
type view struct {
	Type      mcsv1beta1.ServiceImportType
	Ports     []mcsv1beta1.ServicePort
	Affinity  corev1.ServiceAffinity
	Labels    map[string]string
	Clusters  []string
	Endpoints []string // "cluster address ready [ports]", sorted
}

// compare holds every cluster's imports against what the exports of all clusters say, read from the API servers as they are
// now: no broker, no cache, no event is involved in the expectation.
func (w *world) compare() error {
	records := map[types.NamespacedName][]*v1alpha1.ExportRecord{}
	sources := map[string]map[types.NamespacedName]exports.Input{}
	for _, m := range w.fleet.Members {
		exported, err := w.exportsOf(m)
		if err != nil {
			return err
		}
		sources[m.ID] = exported
		for key, in := range exported {
			if plan := exports.Decide(in); plan.Record != nil {
				records[key] = append(records[key], plan.Record)
			}
		}
	}
	for _, m := range w.fleet.Members {
		want := map[string]view{}
		for key, recs := range records {
			want[key.String()] = expected(m.ID, key, recs, sources)
		}
		got, err := w.importsOf(m)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("imports of %s (-want +got):\n%.3000s", m.ID, diff)
		}
		if err := w.conflictsOf(m, records); err != nil {
			return err
		}
	}
	return w.aggregates(records)
}

// expected is what one cluster should have imported of a service.
func expected(cluster string, key types.NamespacedName, recs []*v1alpha1.ExportRecord, sources map[string]map[types.NamespacedName]exports.Input) view {
	mode := merge.Merge(recs).Mode
	in := imports.Input{
		Settings: imports.Settings{ClusterID: cluster, Families: []corev1.IPFamily{corev1.IPv4Protocol}},
		Service:  key, Records: recs, IsNodeAddress: func(netip.Addr) bool { return false },
	}
	for _, r := range recs {
		source := sources[string(r.Spec.ClusterID)][key]
		if string(r.Spec.ClusterID) == cluster {
			in.Own = source
			continue
		}
		in.Slices = append(in.Slices, exports.Slices(source, mode)...)
	}
	plan := imports.Decide(in)
	out := make([]discoveryv1.EndpointSlice, len(plan.Slices))
	for i, s := range plan.Slices {
		out[i] = *s
	}
	return viewOf(plan.Import, out)
}

func viewOf(si *mcsv1beta1.ServiceImport, items []discoveryv1.EndpointSlice) view {
	v := view{Type: si.Spec.Type, Ports: si.Spec.Ports, Affinity: si.Spec.SessionAffinity, Labels: si.Labels}
	for _, c := range si.Status.Clusters {
		v.Clusters = append(v.Clusters, c.Cluster)
	}
	for _, s := range items {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, *p.Name)
		}
		slices.Sort(ports)
		for _, e := range s.Endpoints {
			v.Endpoints = append(v.Endpoints, fmt.Sprintf("%s %v %v %v", s.Labels[mcsv1beta1.LabelSourceCluster], e.Addresses, *e.Conditions.Ready, ports))
		}
	}
	slices.Sort(v.Endpoints)
	return v
}

// exportsOf reads what a cluster exports.
func (w *world) exportsOf(m *fleet.Member) (map[types.NamespacedName]exports.Input, error) {
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

// importsOf reads what a cluster imported.
func (w *world) importsOf(m *fleet.Member) (map[string]view, error) {
	out := map[string]view{}
	for _, ns := range w.namespaces {
		var list mcsv1beta1.ServiceImportList
		var all discoveryv1.EndpointSliceList
		if err := m.Client.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			return nil, err
		}
		if err := m.Client.List(context.Background(), &all, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
			return nil, err
		}
		byService := map[string][]discoveryv1.EndpointSlice{}
		for _, s := range all.Items {
			name := s.Labels[mcsv1beta1.LabelServiceName]
			byService[name] = append(byService[name], s)
		}
		for i := range list.Items {
			si := &list.Items[i]
			out[client.ObjectKeyFromObject(si).String()] = viewOf(si, byService[si.Name])
			delete(byService, si.Name)
		}
		for name := range byService {
			return nil, fmt.Errorf("%s has slices of %s/%s without an import", m.ID, ns, name)
		}
	}
	return out, nil
}

// conflictsOf checks the conditions of a cluster's exports.
func (w *world) conflictsOf(m *fleet.Member, records map[types.NamespacedName][]*v1alpha1.ExportRecord) error {
	exported, err := w.exportsOf(m)
	if err != nil {
		return err
	}
	for key, in := range exported {
		conditions := in.Export.Status.Conditions
		conflict := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if in.Service == nil {
			if valid := meta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionValid)); valid == nil || valid.Reason != "NoService" || conflict != nil {
				return fmt.Errorf("%s: export %s without a Service says %+v", m.ID, key, conditions)
			}
			continue
		}
		status, reason, message := merge.Merge(records[key]).Condition()
		if conflict == nil || conflict.Status != status || conflict.Reason != reason || conflict.Message != message {
			return fmt.Errorf("%s: export %s says %+v, want %s %s", m.ID, key, conflict, reason, message)
		}
		if !meta.IsStatusConditionTrue(conditions, string(mcsv1beta1.ServiceExportConditionReady)) {
			return fmt.Errorf("%s: export %s is not ready: %+v", m.ID, key, conditions)
		}
	}
	return nil
}

// aggregates checks that the broker holds exactly one aggregate per exported service, with the right clusters.
func (w *world) aggregates(records map[types.NamespacedName][]*v1alpha1.ExportRecord) error {
	for _, ns := range w.namespaces {
		var list mcsv1beta1.ServiceImportList
		if err := w.fleet.Admin.List(context.Background(), &list, client.InNamespace(objects.DefaultNamespace), client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}); err != nil {
			return err
		}
		seen := map[types.NamespacedName]bool{}
		for i := range list.Items {
			key, _ := objects.ServiceOf(&list.Items[i])
			seen[key] = true
			if len(records[key]) == 0 {
				return fmt.Errorf("the aggregate of %s is left over", key)
			}
			merged := merge.Merge(records[key])
			var clusters []string
			for _, c := range list.Items[i].Status.Clusters {
				clusters = append(clusters, c.Cluster)
			}
			if want := slices.Sorted(slices.Values(merged.Clusters)); !slices.Equal(clusters, want) {
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

func listVersions(c client.Client, list client.ObjectList) (string, error) {
	if err := c.List(context.Background(), list); err != nil {
		return "", err
	}
	out := ""
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err == nil {
			out += " " + o.GetName() + "=" + o.GetResourceVersion()
		}
		return err
	})
	return out, err
}
