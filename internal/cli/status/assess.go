package status

import (
	"net/netip"
	"slices"
	"strings"

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

// Assess finds what needs attention.
func Assess(in Input) Report {
	report := AssessClusters(in)
	lives := in.lives()
	demoted := explain.Demoted(in.Members, lives)
	services := in.byService()
	report.Services = len(services)
	for _, key := range sortedServices(services) {
		report.Attention = append(report.Attention, services[key].assess(key, lives, demoted)...)
	}
	for i := range in.Clusters {
		report.Attention = append(report.Attention, in.Clusters[i].assess()...)
	}
	rank := map[ServiceState]int{Failing: 0, Stale: 1, Conflict: 2}
	slices.SortStableFunc(report.Attention, func(a, b Service) int {
		if a.State != b.State {
			return rank[a.State] - rank[b.State]
		}
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Cluster, b.Namespace+"/"+b.Name+"/"+b.Cluster)
	})
	return report
}

// AssessClusters finds the state of the clusters and of the broker. It assesses no service.
func AssessClusters(in Input) Report {
	report := Report{ClusterSet: in.ClusterSet, Broker: in.Broker, Clusters: []Member{}, Reachability: []Path{}, Attention: []Service{}}
	lives := in.lives()
	report.Clusters = append(report.Clusters, in.assessMembers(lives)...)
	report.Reachability = append(report.Reachability, in.assessPaths(lives)...)
	return report
}

// lives returns the state of the members by their leases.
func (in *Input) lives() map[string]explain.Life {
	lives := map[string]explain.Life{}
	for i := range in.Leases {
		lives[in.Leases[i].Name] = explain.LifeOf(&in.Leases[i], in.BrokerNow)
	}
	return lives
}

// assessMembers returns all members, and clusters that the broker does not have among its members.
func (in *Input) assessMembers(lives map[string]explain.Life) []Member {
	var out []Member
	index := map[string]int{}
	for i := range in.Members {
		m := &in.Members[i]
		index[m.Name] = len(out)
		out = append(out, Member{
			ID: m.Name, State: Invited, AgentVersion: m.Status.AgentVersion, DataPlane: string(m.Status.DataPlane), Blocks: []string{},
			Namespaces: append([]string{}, m.Spec.AllowedNamespaces...),
		})
		for _, b := range m.Spec.ClusterSetIPBlocks {
			out[i].Blocks = append(out[i].Blocks, string(b))
		}
		if life := lives[m.Name]; life.Joined {
			// On the reader's clock, by which ages are shown.
			out[i].LastHeartbeat = ptr.To(in.Now.Add(-life.Age).UTC())
			out[i].State = Silent
			if life.Alive {
				out[i].State = Alive
			}
		}
	}
	for i := range in.Records {
		if at, ok := index[string(in.Records[i].Spec.ClusterID)]; ok {
			out[at].Exports++
		}
	}
	for i := range in.Slices {
		if at, ok := index[in.Slices[i].Labels[mcsv1beta1.LabelSourceCluster]]; ok {
			ready, total := explain.CountReady(in.Slices[i : i+1])
			out[at].ReadyEndpoints += ready
			out[at].Endpoints += total
		}
	}
	for _, c := range in.Clusters {
		at, ok := index[c.ID]
		if !ok {
			at = len(out)
			out = append(out, Member{ID: c.ID, State: Unknown, Exports: len(c.Exports), Blocks: []string{}, Namespaces: []string{}})
		}
		out[at].Context, out[at].Problem = c.Context, c.Problem
		if c.Problem == "" {
			out[at].Imports = ptr.To(len(c.Imports))
		}
	}
	return out
}

// assessPaths returns which cluster reaches which. The lease decides whether one that is reached is
// silent.
func (in *Input) assessPaths(lives map[string]explain.Life) []Path {
	var out []Path
	for _, c := range in.Clusters {
		for _, r := range c.Reachability {
			r.State = r.State.WithLease(lives[r.Cluster].Silent())
			out = append(out, Path{From: c.ID, Reachability: r})
		}
	}
	return out
}

// published is what the broker has of one service.
type published struct {
	records []*v1alpha1.ExportRecord
	// clusterOf returns what the broker's admin grants a member.
	clusterOf objects.ClusterOf
	// ready is the number of ready endpoints by cluster.
	ready     map[string]int
	aggregate *mcsv1beta1.ServiceImport
}

func (in *Input) member(id string) *v1alpha1.Cluster {
	for i := range in.Members {
		if in.Members[i].Name == id {
			return &in.Members[i]
		}
	}
	return nil
}

// hasClusterSetIP reports whether the service has a clusterset IP. An agent of an earlier version
// claims none in its record; the aggregate has it then.
func (p *published) hasClusterSetIP() bool {
	return len(merge.ClusterSetIPs(p.records, func(netip.Addr) bool { return true })) > 0 ||
		(objects.HasEarlierRecord(p.records) && p.aggregate != nil && len(p.aggregate.Spec.IPs) > 0)
}

// byService groups the objects on the broker by service.
func (in *Input) byService() map[types.NamespacedName]*published {
	out := map[types.NamespacedName]*published{}
	for i := range in.Records {
		r := &in.Records[i]
		if objects.CheckRecord(r) != nil {
			continue
		}
		key := types.NamespacedName{Namespace: r.Spec.ServiceNamespace, Name: r.Spec.ServiceName}
		if out[key] == nil {
			out[key] = &published{ready: map[string]int{}, clusterOf: in.member}
		}
		out[key].records = append(out[key].records, r)
	}
	for i := range in.Slices {
		key, _ := objects.ServiceOf(&in.Slices[i])
		if p := out[key]; p != nil {
			ready, _ := explain.CountReady(in.Slices[i : i+1])
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

// assess returns what is wrong with a service by the objects on the broker.
func (p *published) assess(key types.NamespacedName, lives map[string]explain.Life, demoted map[string]bool) (out []Service) {
	add := func(state ServiceState, cluster, why string) {
		out = append(out, Service{Namespace: key.Namespace, Name: key.Name, State: state, Cluster: cluster, Why: why})
	}
	admitted := objects.AdmittedRecords(p.records, p.clusterOf)
	for _, r := range p.records {
		if id := string(r.Spec.ClusterID); !objects.MayExport(p.clusterOf(id), key.Namespace) {
			add(Failing, id, "importers ignore its record: the broker's admin does not allow the cluster this namespace")
		}
	}
	if len(admitted) == 0 {
		return out
	}
	merged, _ := merge.WithDemoted(admitted, demoted, func(after merge.Result) bool {
		return slices.ContainsFunc(after.Clusters, func(c string) bool { return p.ready[c] > 0 && !lives[c].Silent() })
	})
	var silent []string
	ready := 0
	for _, c := range merged.Clusters {
		if lives[c].Silent() {
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
	if merged.Mode == merge.ModeClusterSetIP && !p.hasClusterSetIP() {
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

// assess returns what is wrong with the exports and imports of a cluster by their conditions.
// Conflicts are left out: they are found on the broker, once for the whole service.
func (c *Cluster) assess() (out []Service) {
	for i := range c.Exports {
		e := &c.Exports[i]
		if why := ExportProblem(e); why != "" {
			out = append(out, Service{Namespace: e.Namespace, Name: e.Name, State: Failing, Cluster: c.ID, Why: why})
		}
	}
	for i := range c.Imports {
		si := &c.Imports[i]
		ready := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if objects.IsManagedImport(si) && ready != nil && ready.Status == metav1.ConditionFalse {
			out = append(out, Service{Namespace: si.Namespace, Name: si.Name, State: Failing, Cluster: c.ID, Why: "import: " + ready.Message})
		}
	}
	return out
}

// ExportProblem returns why an export is not published, or "" if it is.
func ExportProblem(e *mcsv1beta1.ServiceExport) string {
	for _, t := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		c := meta.FindStatusCondition(e.Status.Conditions, string(t))
		switch {
		case c == nil:
			return "export: no agent has set its conditions"
		case c.Status != metav1.ConditionTrue:
			return "export: " + c.Message
		}
	}
	return ""
}
