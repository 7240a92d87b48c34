package status

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// statusInput is all that was read of a clusterset.
type Input struct {
	Now time.Time
	// brokerNow is the same on the broker's clock.
	BrokerNow  time.Time
	Broker     Broker
	ClusterSet string
	Members    []v1alpha1.Cluster
	Leases     []coordinationv1.Lease
	Records    []v1alpha1.ExportRecord
	Slices     []discoveryv1.EndpointSlice
	Aggregates []mcsv1beta1.ServiceImport
	Clusters   []Cluster
}

// siteObjects is what one cluster holds.
type Cluster struct {
	ID, Context string
	Member      bool
	Problem     string
	Exports     []mcsv1beta1.ServiceExport
	Imports     []mcsv1beta1.ServiceImport
}

// assess turns what was read into the picture. It does no I/O.
func Assess(in Input) Report {
	st := Report{ClusterSet: in.ClusterSet, Broker: in.Broker, Clusters: []Member{}, Attention: []Service{}}
	lives := map[string]explain.Life{}
	for i := range in.Leases {
		lives[in.Leases[i].Name] = explain.LifeOf(&in.Leases[i], in.BrokerNow)
	}
	st.Clusters = append(st.Clusters, in.assessMembers(lives)...)
	services := in.byService()
	st.Services = len(services)
	for _, key := range sortedServices(services) {
		st.Attention = append(st.Attention, services[key].assess(key, lives)...)
	}
	for _, s := range in.Clusters {
		st.Attention = append(st.Attention, s.assess()...)
	}
	rank := map[string]int{Failing: 0, Stale: 1, Conflict: 2}
	slices.SortStableFunc(st.Attention, func(a, b Service) int {
		if a.State != b.State {
			return rank[a.State] - rank[b.State]
		}
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Cluster, b.Namespace+"/"+b.Name+"/"+b.Cluster)
	})
	return st
}

func (in Input) assessMembers(lives map[string]explain.Life) []Member {
	var out []Member
	place := map[string]int{}
	for i := range in.Members {
		m := &in.Members[i]
		place[m.Name] = len(out)
		out = append(out, Member{
			ID: m.Name, State: Invited, AgentVersion: m.Status.AgentVersion, DataPlane: string(m.Status.DataPlane), Blocks: []string{},
			Namespaces: append([]string{}, m.Spec.AllowedNamespaces...),
		})
		for _, b := range m.Spec.ClusterSetIPBlocks {
			out[i].Blocks = append(out[i].Blocks, string(b))
		}
		if life := lives[m.Name]; life.Joined {
			// On our clock, as ages are told.
			out[i].LastHeartbeat = ptr.To(in.Now.Add(-life.Age).UTC())
			out[i].State = map[bool]string{true: Alive, false: Silent}[life.Alive]
		}
	}
	for i := range in.Records {
		if at, ok := place[string(in.Records[i].Spec.ClusterID)]; ok {
			out[at].Exports++
		}
	}
	for i := range in.Slices {
		if at, ok := place[in.Slices[i].Labels[mcsv1beta1.LabelSourceCluster]]; ok {
			ready, total := explain.CountEndpoints(in.Slices[i : i+1])
			out[at].ReadyEndpoints += ready
			out[at].Endpoints += total
		}
	}
	for _, s := range in.Clusters {
		at, ok := place[s.ID]
		if !ok {
			at = len(out)
			out = append(out, Member{ID: s.ID, State: Unknown, Exports: len(s.Exports), Blocks: []string{}, Namespaces: []string{}})
		}
		out[at].Context, out[at].Problem = s.Context, s.Problem
		if s.Problem == "" {
			out[at].Imports = ptr.To(len(s.Imports))
		}
	}
	return out
}

// published is what the broker has of one service.
type published struct {
	records   []*v1alpha1.ExportRecord
	ready     map[string]int
	aggregate *mcsv1beta1.ServiceImport
}

func (in Input) byService() map[types.NamespacedName]*published {
	out := map[types.NamespacedName]*published{}
	for i := range in.Records {
		r := &in.Records[i]
		if objects.CheckRecord(r) != nil {
			continue
		}
		key := types.NamespacedName{Namespace: r.Spec.ServiceNamespace, Name: r.Spec.ServiceName}
		if out[key] == nil {
			out[key] = &published{ready: map[string]int{}}
		}
		out[key].records = append(out[key].records, r)
	}
	for i := range in.Slices {
		key, _ := objects.ServiceOf(&in.Slices[i])
		if p := out[key]; p != nil {
			ready, _ := explain.CountEndpoints(in.Slices[i : i+1])
			p.ready[in.Slices[i].Labels[mcsv1beta1.LabelSourceCluster]] += ready
		}
	}
	for i := range in.Aggregates {
		key, _ := objects.ServiceOf(&in.Aggregates[i])
		if p := out[key]; p != nil {
			p.aggregate = &in.Aggregates[i]
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
func (p *published) assess(key types.NamespacedName, lives map[string]explain.Life) (out []Service) {
	add := func(state, cluster, why string) {
		out = append(out, Service{Namespace: key.Namespace, Name: key.Name, State: state, Cluster: cluster, Why: why})
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
		add(Stale, strings.Join(silent, ", "), "every cluster that serves it is silent: its last known endpoints are kept")
	case len(silent) > 0:
		add(Stale, strings.Join(silent, ", "), "silent; other clusters serve it")
	}
	if ready == 0 {
		add(Failing, "", "no endpoint of any cluster is ready")
	}
	if merged.Mode == merge.ModeClusterSetIP && (p.aggregate == nil || len(p.aggregate.Spec.IPs) == 0) {
		add(Failing, "", "it has no clusterset IP")
	}
	for _, c := range merged.Conflicts {
		names := make([]string, len(c.Disagree))
		for i, d := range c.Disagree {
			names[i] = d.Cluster
		}
		add(Conflict, strings.Join(names, ", "), string(c.Reason)+": "+c.Message())
	}
	return out
}

// assess tells what is wrong with the exports and imports of a cluster, by their own word. Conflicts are told for the service.
func (s Cluster) assess() (out []Service) {
	for i := range s.Exports {
		if why := ExportProblem(&s.Exports[i]); why != "" {
			out = append(out, Service{Namespace: s.Exports[i].Namespace, Name: s.Exports[i].Name, State: Failing, Cluster: s.ID, Why: why})
		}
	}
	for i := range s.Imports {
		si := &s.Imports[i]
		ready := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if objects.IsManagedImport(si) && ready != nil && ready.Status == metav1.ConditionFalse {
			out = append(out, Service{Namespace: si.Namespace, Name: si.Name, State: Failing, Cluster: s.ID, Why: "import: " + ready.Message})
		}
	}
	return out
}

// whyNotExported is empty for an export that is as it should be.
func ExportProblem(e *mcsv1beta1.ServiceExport) string {
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
