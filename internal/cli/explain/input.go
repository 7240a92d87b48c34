// Package explain tells the story of one service from end to end: what each exporter says, what was merged and why, which address it
// has and who gave it, what every importing cluster and its data plane hold, what DNS answers. Where something is broken it names the
// hop, the cause and the cure.
//
// It is pure: Explain turns what was read into a Report, Write turns that into text. Reading is the caller's.
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

// Input is all that was read of one service.
type Input struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Now is when it was read, on the reader's clock.
	Now    metav1.Time `json:"now"`
	Broker Broker      `json:"broker"`
	// Clusters are those that could be looked into, or should have been.
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
	// Problem is why it could not be asked; then the rest is empty.
	Problem string `json:"problem,omitempty"`
	// Via says as whom it was asked.
	Via       string                      `json:"via,omitempty"`
	Namespace string                      `json:"namespace,omitempty"`
	Set       *v1alpha1.ClusterSet        `json:"clusterSet,omitempty"`
	Members   []v1alpha1.Cluster          `json:"members,omitempty"`
	Leases    []coordinationv1.Lease      `json:"leases,omitempty"`
	Records   []v1alpha1.ExportRecord     `json:"records,omitempty"`
	Slices    []discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Aggregate is the merged ServiceImport; nil when there is none.
	Aggregate *mcsv1beta1.ServiceImport `json:"aggregate,omitempty"`
	// ClockAhead is how far its clock is ahead of the reader's.
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
	// ID is the cluster's id, or the name of its context where it has none.
	ID string `json:"id"`
	// Context is the context to reach it with; empty for the current one.
	Context string `json:"context,omitempty"`
	// Problem is why it could not be looked into; then the rest is empty.
	Problem string `json:"problem,omitempty"`
	// Member tells that it is a member of the clusterset.
	Member    bool               `json:"member"`
	DataPlane v1alpha1.DataPlane `json:"dataPlane,omitempty"`
	// Families are the address families of the cluster; empty when unknown.
	Families         []corev1.IPFamily `json:"families,omitempty"`
	NamespaceMissing bool              `json:"namespaceMissing,omitempty"`

	Export  *mcsv1beta1.ServiceExport `json:"export,omitempty"`
	Service *corev1.Service           `json:"service,omitempty"`
	// Slices are the Service's own, Imported those of the import.
	Slices   []discoveryv1.EndpointSlice `json:"slices,omitempty"`
	Import   *mcsv1beta1.ServiceImport   `json:"import,omitempty"`
	Derived  *corev1.Service             `json:"derived,omitempty"`
	Imported []discoveryv1.EndpointSlice `json:"imported,omitempty"`

	// Waiting is what the cluster's agent waits for before it writes what the service needs.
	Waiting []objects.Waiting `json:"waiting,omitempty"`

	// Zone is the zone of the clusterset's names in this cluster; empty for the default.
	Zone string `json:"zone,omitempty"`
	// Agent, Proxy and DNSServer are the workloads that should run there; nil when none of that name is.
	Agent *Workload `json:"agent,omitempty"`
	Proxy *Workload `json:"proxy,omitempty"`
	// DNSServer is seamark-dns; DNSAddresses are those of its Service.
	DNSServer    *Workload `json:"dnsServer,omitempty"`
	DNSAddresses []string  `json:"dnsAddresses,omitempty"`
	// Corefile is the configuration of the cluster's own DNS; empty when it is not known.
	Corefile string `json:"corefile,omitempty"`
	// Proxies are what seamark-proxy has programmed for the service, node by node; ProxiesNotAsked is why some or all of them were not asked.
	Proxies         []programmed.Service `json:"proxies,omitempty"`
	ProxiesNotAsked string               `json:"proxiesNotAsked,omitempty"`
	// DNS is what the clusterset's name was answered with; nil counts as not asked.
	DNS *Answer `json:"dns,omitempty"`
	// ClockAhead is how far its clock is ahead of the reader's.
	ClockAhead metav1.Duration `json:"clockAhead,omitempty"`
}

// zone returns the zone of the clusterset's names; c may be nil.
func (c *Cluster) zone() string {
	if c == nil {
		return objects.DefaultZone
	}
	return cmp.Or(c.Zone, objects.DefaultZone)
}

// Workload is how many pods of a workload are ready.
type Workload struct {
	Ready int32 `json:"ready"`
	Want  int32 `json:"want"`
}

// Answer is what a DNS server said.
type Answer struct {
	// Server is who was asked.
	Server string `json:"server,omitempty"`
	// NotAsked says why nobody was.
	NotAsked string `json:"notAsked,omitempty"`
	// Code is the response code, NOERROR or NXDOMAIN for example; empty with a Problem.
	Code      string   `json:"code,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Problem is why there was no answer.
	Problem string `json:"problem,omitempty"`
}
