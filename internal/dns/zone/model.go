// Package zone answers the names of one clusterset zone. It holds, for every imported service, answers that were prepared when
// the service last changed; reading them takes no lock.
//
// It knows nothing of Kubernetes: model.go is what it is told, build.go prepares, zone.go keeps, parse.go and reply.go answer.
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

// String is the name of a kind as it shows in metrics.
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

// Service is what DNS needs to know about an imported service.
type Service struct {
	Namespace, Name string
	Kind            Kind
	// Ports of the merged service. Headless services have those of their slices instead.
	Ports []Port
	// IPs are the addresses of a ClusterSetIP service.
	IPs []netip.Addr
	// ReverseIPs are those of IPs whose names are ours to tell: not those of derived Services, which the cluster's own DNS knows.
	ReverseIPs []netip.Addr
	// Slices hold the endpoints of headless and classic services.
	Slices []*Slice
}

// Slice is one imported EndpointSlice, reduced to endpoints that are ready.
type Slice struct {
	Cluster string
	// Weight is the cluster's share of a classic service's answers; 0 leaves it out while another serves.
	Weight    uint8
	Ports     []Port
	Endpoints []Endpoint
}

// Endpoint is one address of a ready endpoint.
type Endpoint struct {
	Addr     netip.Addr
	Hostname string
	Zone     string
}

// Locality says where this server is, and for which kinds of service near addresses come first.
type Locality struct {
	Cluster, Zone     string
	Headless, Classic bool
}

// distance orders endpoints: 0 is nearest. The topology zone comes before the cluster, as in the data plane: two clusters may
// well share a zone, and one cluster may well span several.
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

// Options are how a zone answers.
type Options struct {
	// Name is the zone in lower case, with a dot at its end.
	Name string
	// TTL of all records in seconds, but for the schema version's.
	TTL uint32
	// NameServers are the addresses of ns.dns.<zone>.
	NameServers []netip.Addr
	// ClusterNames adds cluster.service.ns.svc.<zone> for headless and classic services, as Lighthouse has them. The
	// multicluster DNS specification rules them out.
	ClusterNames bool
}

// Key is the name of a service as the zone keeps it: the labels before "svc".
func Key(namespace, name string) string { return name + "." + namespace }
