package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// statusInput is all that was read of a clusterset.
type statusInput struct {
	now time.Time
	// brokerNow is the same on the broker's clock.
	brokerNow  time.Time
	broker     brokerStatus
	set        string
	members    []v1alpha1.Cluster
	leases     []coordinationv1.Lease
	records    []v1alpha1.ExportRecord
	slices     []discoveryv1.EndpointSlice
	aggregates []mcsv1beta1.ServiceImport
	sites      []siteObjects
}

// siteObjects is what one cluster holds.
type siteObjects struct {
	id, context string
	member      bool
	problem     string
	exports     []mcsv1beta1.ServiceExport
	imports     []mcsv1beta1.ServiceImport
}

// readStatus reads the broker and the clusters. What cannot be read is told in what it returns.
func readStatus(ctx context.Context, sites []*site, h *hub) statusInput {
	in := statusInput{}
	var reading sync.WaitGroup
	reading.Go(func() { in.readHub(ctx, h) })
	in.sites = make([]siteObjects, len(sites))
	for i, s := range sites {
		reading.Go(func() { in.sites[i] = s.readAll(ctx, "") })
	}
	reading.Wait()
	in.now = time.Now()
	in.brokerNow = in.now
	if h.problem == nil {
		in.brokerNow = h.clock.now(in.now)
	}
	in.sites = slices.DeleteFunc(in.sites, func(s siteObjects) bool { return s.problem == "" && !s.member })
	return in
}

func (in *statusInput) readHub(ctx context.Context, h *hub) {
	if h.problem != nil {
		in.broker.Problem = h.problem.Error()
		return
	}
	in.broker = brokerStatus{Server: h.config.Host, Via: h.via}
	in.set = h.set.Name
	var (
		members    v1alpha1.ClusterList
		leases     coordinationv1.LeaseList
		records    v1alpha1.ExportRecordList
		slices     discoveryv1.EndpointSliceList
		aggregates mcsv1beta1.ServiceImportList
	)
	for _, list := range []client.ObjectList{&members, &leases, &records, &slices, &aggregates} {
		if err := h.client.List(ctx, list, client.InNamespace(h.namespace)); err != nil {
			in.broker.Problem = plainError(err)
			return
		}
	}
	in.members, in.leases, in.records, in.slices, in.aggregates = members.Items, leases.Items, records.Items, slices.Items, aggregates.Items
}

// readAll reads the exports and imports of a cluster, in one namespace or in all.
func (s *site) readAll(ctx context.Context, namespace string) siteObjects {
	o := siteObjects{id: s.name(), context: s.context, member: s.member()}
	if s.problem != nil {
		o.problem = s.problem.Error()
		return o
	}
	var exports mcsv1beta1.ServiceExportList
	var imported mcsv1beta1.ServiceImportList
	for _, list := range []client.ObjectList{&exports, &imported} {
		if err := s.client.List(ctx, list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
			o.problem = plainError(err)
			return o
		}
	}
	o.exports = exports.Items
	for i := range imported.Items {
		if _, onBroker := imported.Items[i].Labels[v1alpha1.LabelServiceNamespace]; !onBroker { // a broker may live on the same API server
			o.imports = append(o.imports, imported.Items[i])
		}
	}
	return o
}

// assess turns what was read into the picture. It does no I/O.
func assess(in statusInput) status {
	st := status{ClusterSet: in.set, Broker: in.broker, Clusters: []memberStatus{}, Attention: []serviceStatus{}}
	lives := map[string]explain.Life{}
	for i := range in.leases {
		lives[in.leases[i].Name] = explain.LifeOf(&in.leases[i], in.brokerNow)
	}
	st.Clusters = append(st.Clusters, in.assessMembers(lives)...)
	services := in.byService()
	st.Services = len(services)
	for _, key := range sortedServices(services) {
		st.Attention = append(st.Attention, services[key].assess(key, lives)...)
	}
	for _, s := range in.sites {
		st.Attention = append(st.Attention, s.assess()...)
	}
	rank := map[string]int{serviceFailing: 0, serviceStale: 1, serviceConflict: 2}
	slices.SortStableFunc(st.Attention, func(a, b serviceStatus) int {
		if a.State != b.State {
			return rank[a.State] - rank[b.State]
		}
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Cluster, b.Namespace+"/"+b.Name+"/"+b.Cluster)
	})
	return st
}

func (in statusInput) assessMembers(lives map[string]explain.Life) []memberStatus {
	var out []memberStatus
	place := map[string]int{}
	for i := range in.members {
		m := &in.members[i]
		place[m.Name] = len(out)
		out = append(out, memberStatus{
			ID: m.Name, State: lifeInvited, AgentVersion: m.Status.AgentVersion, DataPlane: string(m.Status.DataPlane), Blocks: []string{},
			Namespaces: append([]string{}, m.Spec.AllowedNamespaces...),
		})
		for _, b := range m.Spec.ClusterSetIPBlocks {
			out[i].Blocks = append(out[i].Blocks, string(b))
		}
		if life := lives[m.Name]; life.Joined {
			// On our clock, as ages are told.
			out[i].LastHeartbeat = ptr.To(in.now.Add(-life.Age).UTC())
			out[i].State = map[bool]string{true: lifeAlive, false: lifeSilent}[life.Alive]
		}
	}
	for i := range in.records {
		if at, ok := place[string(in.records[i].Spec.ClusterID)]; ok {
			out[at].Exports++
		}
	}
	for i := range in.slices {
		if at, ok := place[in.slices[i].Labels[mcsv1beta1.LabelSourceCluster]]; ok {
			ready, total := countReady(in.slices[i])
			out[at].ReadyEndpoints += ready
			out[at].Endpoints += total
		}
	}
	for _, s := range in.sites {
		at, ok := place[s.id]
		if !ok {
			at = len(out)
			out = append(out, memberStatus{ID: s.id, State: lifeUnknown, Exports: len(s.exports), Blocks: []string{}, Namespaces: []string{}})
		}
		out[at].Context, out[at].Problem = s.context, s.problem
		if s.problem == "" {
			out[at].Imports = ptr.To(len(s.imports))
		}
	}
	return out
}

func countReady(s discoveryv1.EndpointSlice) (ready, total int) {
	for i := range s.Endpoints {
		if ptr.Deref(s.Endpoints[i].Conditions.Ready, true) {
			ready++
		}
	}
	return ready, len(s.Endpoints)
}

// published is what the broker has of one service.
type published struct {
	records   []*v1alpha1.ExportRecord
	ready     map[string]int
	aggregate *mcsv1beta1.ServiceImport
}

func (in statusInput) byService() map[types.NamespacedName]*published {
	out := map[types.NamespacedName]*published{}
	for i := range in.records {
		r := &in.records[i]
		if objects.CheckRecord(r) != nil {
			continue
		}
		key := types.NamespacedName{Namespace: r.Spec.ServiceNamespace, Name: r.Spec.ServiceName}
		if out[key] == nil {
			out[key] = &published{ready: map[string]int{}}
		}
		out[key].records = append(out[key].records, r)
	}
	for i := range in.slices {
		key, _ := objects.ServiceOf(&in.slices[i])
		if p := out[key]; p != nil {
			ready, _ := countReady(in.slices[i])
			p.ready[in.slices[i].Labels[mcsv1beta1.LabelSourceCluster]] += ready
		}
	}
	for i := range in.aggregates {
		key, _ := objects.ServiceOf(&in.aggregates[i])
		if p := out[key]; p != nil {
			p.aggregate = &in.aggregates[i]
		}
	}
	return out
}

func sortedServices(services map[types.NamespacedName]*published) []types.NamespacedName {
	keys := make([]types.NamespacedName, 0, len(services))
	for key := range services {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// assess tells what is wrong with a service as the broker has it.
func (p *published) assess(key types.NamespacedName, lives map[string]explain.Life) (out []serviceStatus) {
	add := func(state, cluster, why string) {
		out = append(out, serviceStatus{Namespace: key.Namespace, Name: key.Name, State: state, Cluster: cluster, Why: why})
	}
	merged := merge.Merge(p.records)
	var silent []string
	ready := 0
	for _, c := range merged.Clusters {
		if life, known := lives[c]; known && life.Joined && !life.Alive {
			silent = append(silent, c)
		}
		ready += p.ready[c]
	}
	switch {
	case len(silent) == len(merged.Clusters):
		add(serviceStale, strings.Join(silent, ", "), "every cluster that serves it is silent: its last known endpoints are kept")
	case len(silent) > 0:
		add(serviceStale, strings.Join(silent, ", "), "silent; other clusters serve it")
	}
	if ready == 0 {
		add(serviceFailing, "", "no endpoint of any cluster is ready")
	}
	if merged.Mode == merge.ModeClusterSetIP && (p.aggregate == nil || len(p.aggregate.Spec.IPs) == 0) {
		add(serviceFailing, "", "it has no clusterset IP")
	}
	for _, c := range merged.Conflicts {
		names := make([]string, len(c.Disagree))
		for i, d := range c.Disagree {
			names[i] = d.Cluster
		}
		add(serviceConflict, strings.Join(names, ", "), string(c.Reason)+": "+c.Message())
	}
	return out
}

// assess tells what is wrong with the exports and imports of a cluster, by their own word. Conflicts are told for the service.
func (s siteObjects) assess() (out []serviceStatus) {
	for i := range s.exports {
		if why := whyNotExported(&s.exports[i]); why != "" {
			out = append(out, serviceStatus{Namespace: s.exports[i].Namespace, Name: s.exports[i].Name, State: serviceFailing, Cluster: s.id, Why: why})
		}
	}
	for i := range s.imports {
		si := &s.imports[i]
		ready := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if objects.IsManagedImport(si) && ready != nil && ready.Status == metav1.ConditionFalse {
			out = append(out, serviceStatus{Namespace: si.Namespace, Name: si.Name, State: serviceFailing, Cluster: s.id, Why: "import: " + ready.Message})
		}
	}
	return out
}

// whyNotExported is empty for an export that is as it should be.
func whyNotExported(e *mcsv1beta1.ServiceExport) string {
	for _, t := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		c := meta.FindStatusCondition(e.Status.Conditions, string(t))
		switch {
		case c == nil:
			return "export: no agent has looked at it"
		case c.Status != metav1.ConditionTrue:
			return "export: " + c.Message
		}
	}
	return ""
}
