// Package explain describes one service from end to end: what each cluster exports, what was merged
// and why, which clusterset IP it has and which cluster allocated it, what every importing cluster
// and its data plane hold, and what DNS answers. Where something is broken it names the hop, the
// cause and the cure.
//
// It is pure: Explain turns what was read into a Report, Write turns that into text. The caller
// does the reading.
package explain

import (
	"cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// Input is everything that was read about one service.
type Input struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Now is when it was read, by the reader's clock.
	Now    metav1.Time `json:"now"`
	Broker Broker      `json:"broker"`
	// Clusters are the clusters that were read, or that should have been.
	Clusters []Cluster `json:"clusters"`
}

func (in *Input) service() types.NamespacedName {
	return types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
}

func (in *Input) cluster(id string) *Cluster {
	for i := range in.Clusters {
		if in.Clusters[i].ID == id {
			return &in.Clusters[i]
		}
	}
	return nil
}

// Broker is what the broker holds of the service.
type Broker struct {
	// Problem is why it could not be read; then the rest is empty.
	Problem string `json:"problem,omitempty"`
	// Via names the credential with which it was read.
	Via       string                      `json:"via,omitempty"`
	Namespace string                      `json:"namespace,omitempty"`
	Set       *v1alpha1.ClusterSet        `json:"clusterSet,omitempty"`
	Members   []v1alpha1.Cluster          `json:"members,omitempty"`
	Leases    []coordinationv1.Lease      `json:"leases,omitempty"`
	Records   []v1alpha1.ExportRecord     `json:"records,omitempty"`
	Slices    []discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Aggregate is the merged ServiceImport; nil when there is none.
	Aggregate *mcsv1beta1.ServiceImport `json:"aggregate,omitempty"`
	// ClockAhead is how far its API server's clock is ahead of the reader's.
	ClockAhead metav1.Duration `json:"clockAhead,omitempty"`
}

func (b *Broker) member(id string) *v1alpha1.Cluster {
	for i := range b.Members {
		if b.Members[i].Name == id {
			return &b.Members[i]
		}
	}
	return nil
}

// Cluster is what one cluster holds of the service.
type Cluster struct {
	// ID is the cluster's id, or the name of its context if it has none.
	ID string `json:"id"`
	// Context is the context to reach it with; empty for the current one.
	Context string `json:"context,omitempty"`
	// Problem is why it could not be read; then the rest is empty.
	Problem string `json:"problem,omitempty"`
	// Member reports whether it is a member of the clusterset.
	Member    bool               `json:"member"`
	DataPlane v1alpha1.DataPlane `json:"dataPlane,omitempty"`
	// Families are the IP families of the cluster; empty when unknown.
	Families         []corev1.IPFamily `json:"families,omitempty"`
	NamespaceMissing bool              `json:"namespaceMissing,omitempty"`

	Export  *mcsv1beta1.ServiceExport `json:"export,omitempty"`
	Service *corev1.Service           `json:"service,omitempty"`
	// Slices are the Service's own EndpointSlices, Imported those of the import.
	Slices   []discoveryv1.EndpointSlice `json:"slices,omitempty"`
	Import   *mcsv1beta1.ServiceImport   `json:"import,omitempty"`
	Derived  *corev1.Service             `json:"derived,omitempty"`
	Imported []discoveryv1.EndpointSlice `json:"imported,omitempty"`

	// Unreachable are the clusters that cannot be reached from this one, as its agent publishes them.
	Unreachable []string `json:"unreachable,omitempty"`
	// Waiting is what the cluster's agent waits for before it writes what the service needs.
	Waiting []objects.Waiting `json:"waiting,omitempty"`

	// Zone is the zone of the clusterset's names in this cluster; empty for the default.
	Zone string `json:"zone,omitempty"`
	// Agent, Proxy and DNSServer are Seamark's workloads; nil when there is none of that name.
	Agent *Workload `json:"agent,omitempty"`
	Proxy *Workload `json:"proxy,omitempty"`
	// DNSServer is seamark-dns; DNSAddresses are the addresses of its Service.
	DNSServer    *Workload `json:"dnsServer,omitempty"`
	DNSAddresses []string  `json:"dnsAddresses,omitempty"`
	// Corefile is the configuration of the cluster's own DNS; empty when it is not known.
	Corefile string `json:"corefile,omitempty"`
	// Proxies are what seamark-proxy has programmed for the service, node by node. ProxiesNotAsked
	// is why some or all of them were not asked.
	Proxies         []programmed.Service `json:"proxies,omitempty"`
	ProxiesNotAsked string               `json:"proxiesNotAsked,omitempty"`
	// DNS is the answer for the service's name; nil counts as not asked.
	DNS *Answer `json:"dns,omitempty"`
	// ClockAhead is how far its API server's clock is ahead of the reader's.
	ClockAhead metav1.Duration `json:"clockAhead,omitempty"`
}

// zone returns the zone of the clusterset's names; c may be nil.
func (c *Cluster) zone() string {
	if c == nil {
		return objects.DefaultZone
	}
	return cmp.Or(c.Zone, objects.DefaultZone)
}

// Workload is how many pods of a workload are ready, and how many it should have.
type Workload struct {
	Ready int32 `json:"ready"`
	Want  int32 `json:"want"`
}

// Answer is the answer of a DNS server.
type Answer struct {
	// Server is the server that was asked.
	Server string `json:"server,omitempty"`
	// NotAsked is why no server was asked.
	NotAsked string `json:"notAsked,omitempty"`
	// Code is the response code, NOERROR or NXDOMAIN for example; empty with a Problem.
	Code      string   `json:"code,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Problem is why there was no answer.
	Problem string `json:"problem,omitempty"`
}
