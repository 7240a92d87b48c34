// Package zone answers the names of one clusterset zone. For every imported service it stores
// answers that were prepared when the service last changed, and reading them takes no lock.
//
// A query passes parse.go, which splits its name, and zone.go, which stores the answers. Then
// wire.go writes the most frequent replies as bytes, reply.go and srv.go build the others as
// messages, and reverse.go answers for reverse names. order.go decides the order of addresses.
//
// A changed service, as model.go describes it, is prepared in build.go and stored in zone.go. The
// package does not depend on Kubernetes.
package zone

import "net/netip"

// Kind is how clients reach a service.
type Kind uint8

const (
	// ClusterSetIP services have addresses of their own.
	ClusterSetIP Kind = iota
	// Classic services are reached through each exporting cluster's own ClusterIP.
	Classic
	// Headless services are their endpoints.
	Headless
)

// String returns the name of a kind in metrics.
func (k Kind) String() string {
	switch k {
	case Classic:
		return "classic"
	case Headless:
		return "headless"
	default:
		return "clustersetip"
	}
}

// Port is a port of a service or of a slice. Only named ports have records.
type Port struct {
	Name     string
	Protocol string // TCP, UDP or SCTP, in any case
	Number   uint16
}

// Service is an imported service as far as DNS needs it.
type Service struct {
	Namespace, Name string
	Kind            Kind
	// Managed is set if Seamark's agent wrote the ServiceImport.
	Managed bool
	// Ports of the merged service. Headless services have those of their slices instead.
	Ports []Port
	// IPs are the addresses of a ClusterSetIP service.
	IPs []netip.Addr
	// ReverseIPs are those of IPs for which the zone has a reverse name. The ClusterIPs of derived
	// Services are not among them: the cluster's own DNS answers for those.
	ReverseIPs []netip.Addr
	// Slices hold the endpoints of headless and classic services.
	Slices []*Slice
}

// Slice is one imported EndpointSlice, reduced to endpoints that are ready.
type Slice struct {
	Cluster string
	// Weight is the cluster's share of a classic service's answers. A cluster of weight 0 is left
	// out while another serves.
	Weight uint8
	// Lighthouse is set if an agent of Submariner Lighthouse wrote the slice.
	Lighthouse bool
	Ports      []Port
	Endpoints  []Endpoint
}

// Endpoint is one address of a ready endpoint.
type Endpoint struct {
	Addr     netip.Addr
	Hostname string
	Zone     string
}

// Locality is where this server is, and for which kinds of services near addresses come first.
type Locality struct {
	Cluster, Zone     string
	Headless, Classic bool
}

// distance returns how far an endpoint is; 0 is nearest. The topology zone comes before the
// cluster, as in the data plane: two clusters can share a zone, and one cluster can span several.
func (l Locality) distance(kind Kind, cluster, zone string) int {
	ordered := kind == Headless && l.Headless || kind == Classic && l.Classic
	switch {
	case !ordered:
		return 0
	case l.Zone != "" && zone == l.Zone:
		return 0
	case l.Cluster != "" && cluster == l.Cluster:
		return 1
	default:
		return 2
	}
}

// Options are the settings of a zone.
type Options struct {
	// Name is the zone in lower case, with a dot at its end.
	Name string
	// TTL of all records in seconds, except that of the schema version.
	TTL uint32
	// ClusterNames adds cluster.service.ns.svc.<zone> for headless and classic services, as
	// Lighthouse has them. The multicluster DNS specification rules them out.
	ClusterNames bool
}

// Key returns the key of a service in the zone: the labels before "svc".
func Key(namespace, name string) string { return name + "." + namespace }
