// Package generate makes up clustersets of any size, for tests and measurements of the page. What
// is wrong with their services is found by package explain, as in real ones.
package generate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

// Fleet is a clusterset that was made up.
type Fleet struct {
	Services, Clusters int
	// Trouble makes every n-th service have trouble; 0 for none.
	Trouble int
	// Problem is why a cluster cannot be read, by id.
	Problem map[string]string

	Now     time.Time
	columns *state.Columns
	members []v1alpha1.Cluster
	leases  []coordinationv1.Lease
	rows    map[string]*state.Row
}

// exporters is how many clusters export each service.
const exporters = 3

// New returns a clusterset.
func New(services, clusters, trouble int) *Fleet {
	f := &Fleet{Services: services, Clusters: clusters, Trouble: trouble, Problem: map[string]string{}, Now: time.Now().UTC()}
	f.rows = map[string]*state.Row{}
	ids := make([]string, clusters)
	for i := range ids {
		ids[i] = ClusterID(i)
		f.members = append(f.members, v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: ids[i]}})
		f.leases = append(f.leases, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: ids[i]},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: f.Now}, LeaseDurationSeconds: ptr.To[int32](3600)},
		})
	}
	slices.Sort(ids)
	f.columns = state.NewColumns(ids)
	return f
}

// ClusterID returns the id of the cluster at an index.
func ClusterID(i int) string {
	return fmt.Sprintf("%s-%03d", []string{"east", "north", "south", "west"}[i%4], i)
}

// ServiceName returns the name of the service at an index, as namespace/name.
func ServiceName(i int) string { return fmt.Sprintf("team-%02d/service-%04d", i%40, i) }

// Input returns what would have been read about a service.
func (f *Fleet) Input(i int) explain.Input {
	namespace, name, _ := strings.Cut(ServiceName(i), "/")
	in := explain.Input{Namespace: namespace, Name: name, Now: metav1.NewTime(f.Now), Broker: explain.Broker{
		Namespace: objects.DefaultNamespace, Members: f.members, Leases: f.leases,
	}}
	troubled := f.Trouble > 0 && i%f.Trouble == 0
	ip := fmt.Sprintf("243.%d.%d.%d", i>>16, i>>8&255, i&255)
	var imported []discoveryv1.EndpointSlice
	for k := range min(exporters, f.Clusters) {
		id := ClusterID((i*7 + k*max(1, f.Clusters/exporters)) % f.Clusters)
		port := int32(80)
		if troubled && i/f.Trouble%3 == 1 && k == 1 {
			port = 8080
		}
		in.Broker.Records = append(in.Broker.Records, f.record(namespace, name, id, ip, k, port))
		slice := f.slice(namespace, name, id, k)
		in.Broker.Slices = append(in.Broker.Slices, slice)
		slice.Labels = map[string]string{
			mcsv1beta1.LabelSourceCluster: id, mcsv1beta1.LabelServiceName: name, discoveryv1.LabelManagedBy: objects.ManagedBy,
		}
		imported = append(imported, slice)
	}
	si := importOf(namespace, name, ip)
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: objects.DerivedServiceName(name), Namespace: namespace, Labels: map[string]string{
		mcsv1beta1.LabelServiceName: name, objects.LabelManagedBy: objects.ManagedBySeamark,
	}}}
	for c := range f.Clusters {
		id := ClusterID(c)
		cluster := explain.Cluster{
			ID: id, Context: id, Member: true, DataPlane: v1alpha1.DataPlaneService, Import: si, Derived: derived, Imported: imported,
			Agent: &explain.Workload{Ready: 2, Want: 2}, Problem: f.Problem[id]}
		if troubled && i/f.Trouble%3 == 0 && c == (i*13)%f.Clusters {
			cluster.Import, cluster.Derived, cluster.Imported = nil, nil, nil
		}
		if troubled && i/f.Trouble%3 == 2 && c%5 == i%5 {
			cluster.Imported = imported[1:]
		}
		in.Clusters = append(in.Clusters, cluster)
	}
	return in
}

func (f *Fleet) record(namespace, name, id, ip string, age int, port int32) v1alpha1.ExportRecord {
	key := objects.Labels(types.NamespacedName{Namespace: namespace, Name: name}, id)
	return v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(types.NamespacedName{Namespace: namespace, Name: name}, id),
			Namespace: objects.DefaultNamespace, Labels: key},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceNamespace: namespace, ServiceName: name, ClusterID: v1alpha1.ClusterID(id), Type: mcsv1beta1.ClusterSetIP,
			ExportedAt: metav1.NewTime(f.Now.Add(-time.Hour * time.Duration(24-age))), ClusterSetIPs: []string{ip},
			IPFamilies:      []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:           []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
			SessionAffinity: corev1.ServiceAffinityNone, UseClusterSetIP: true, RequestedClusterSetIP: true, MergeVersion: 1,
		},
	}
}

func (f *Fleet) slice(namespace, name, id string, k int) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", name, id),
			Labels: objects.Labels(types.NamespacedName{Namespace: namespace, Name: name}, id)}, AddressType: discoveryv1.AddressTypeIPv4,
	}
	for e := range 3 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.0.%d", k, e+1)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			Zone: ptr.To(string(rune('a' + e))),
		})
	}
	return s
}

func importOf(namespace, name, ip string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{ip}},
		Status: mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{
			{Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue, Reason: string(mcsv1beta1.ServiceImportReasonReady)},
		}},
	}
}

// Explain explains the service at an index.
func (f *Fleet) Explain(i int) explain.Report { return explain.Explain(f.Input(i)) }

// Refresh explains some services again.
func (f *Fleet) Refresh(indexes ...int) {
	for _, i := range indexes {
		in := f.Input(i)
		report := explain.Explain(in)
		f.rows[ServiceName(i)] = state.NewRow(&in, &report, f.columns, f.rows[ServiceName(i)])
	}
}

// All returns the indexes of all services.
func (f *Fleet) All() []int {
	out := make([]int, f.Services)
	for i := range out {
		out[i] = i
	}
	return out
}

// Snapshot returns the state with a number.
func (f *Fleet) Snapshot(seq int64) *state.Snapshot {
	s := &state.Snapshot{Seq: seq, At: time.Now().UTC(), ClusterSet: "prod"}
	s.Broker.Server = "https://broker.example"
	for i := range f.Clusters {
		id := ClusterID(i)
		c := state.Cluster{Member: status.Member{
			ID: id, Context: id, State: status.Alive, LastHeartbeat: &f.Now, AgentVersion: "v1.0.0", DataPlane: "service",
			Exports: f.Services * exporters / f.Clusters,
			Imports: ptr.To(f.Services), Endpoints: 60, ReadyEndpoints: 60, Blocks: []string{}, Namespaces: []string{}, Problem: f.Problem[id],
		}, Verdict: state.OK, Read: true, Kubernetes: "v1.36.3", Pool: &state.Pool{Used: 60, Size: 16382}}
		if c.Problem != "" {
			c.Verdict, c.LastSeen = state.Unknown, &f.Now
		}
		s.Clusters = append(s.Clusters, c)
	}
	slices.SortFunc(s.Clusters, func(a, b state.Cluster) int { return strings.Compare(a.ID, b.ID) })
	for _, row := range f.rows {
		s.Rows = append(s.Rows, row)
	}
	slices.SortFunc(s.Rows, func(a, b *state.Row) int { return strings.Compare(a.Name, b.Name) })
	s.Paths = f.paths()
	return s
}

func (f *Fleet) paths() []state.Path {
	var report status.Report
	for i := range min(f.Clusters, 12) {
		for k := range min(f.Clusters, 12) {
			if i == k {
				continue
			}
			r := objects.Reachability{
				Cluster: ClusterID(k), Family: corev1.IPv4Protocol, State: objects.Reachable, Reason: objects.ReachBeaconsAnswer,
				Since:   f.Now.Add(-time.Hour),
				Latency: 0.0021, Beacons: 3, Answering: 3,
			}
			if f.Problem[r.Cluster] != "" {
				r.State, r.Reason, r.Answering, r.Latency = objects.Unreachable, objects.ReachNoAnswer, 0, 0
			}
			report.Reachability = append(report.Reachability, status.Path{From: ClusterID(i), Reachability: r})
		}
	}
	return state.NewPaths(&report)
}
