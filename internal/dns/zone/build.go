package zone

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unique"
)

// maxName is the length of the longest name in text form, with the dot at its end: 255 bytes on the
// wire (RFC 1035, 2.3.4), which include a length byte for each label and one for the root.
const maxName = 254

// Answers are the prepared answers of one service. They never change.
type Answers struct {
	key    string // name.namespace
	fqdn   string
	kind   Kind
	v4, v6 addresses
	ports  []portName
	// hosts are the endpoints of a headless service that have a name, by the labels left of the
	// service's.
	hosts  []host
	byName map[string]int32
	// emptyNonTerminals are labels left of the service's that have no records but names below them.
	emptyNonTerminals []string
	// reverse are the addresses of a ClusterSetIP service that have a reverse name in the zone.
	reverse []netip.Addr
}

// portName is a port with records.
type portName struct {
	left     string // _port._protocol
	protocol string // _protocol
	number   uint16
	// targets are the endpoints of a headless service with the port. It is nil if the target is the
	// service itself.
	targets []target
}

type target struct {
	host   int32
	number uint16
}

// host is a name below a service: an endpoint of a headless service or, with Options.ClusterNames,
// a cluster.
type host struct {
	fqdn   string
	v4, v6 addresses
	// remote is set for hosts in other clusters. The cluster's own DNS has the reverse names of the
	// local ones.
	remote bool
}

// Build prepares the answers of a service. It returns nil if the service has no name: a headless
// service without a ready endpoint has none by the specification.
func Build(o Options, l Locality, s Service) *Answers {
	key := strings.ToLower(Key(s.Namespace, s.Name))
	a := &Answers{key: key, fqdn: key + ".svc." + o.Name, kind: s.Kind}
	if len(a.fqdn) > maxName {
		return nil // no query can contain it
	}
	a.key = a.fqdn[:len(key)] // share the bytes
	switch s.Kind {
	case ClusterSetIP:
		for _, ip := range s.IPs {
			a.family(ip).add(ip)
		}
		a.reverse = s.ReverseIPs
		a.addServicePorts(s.Ports)
	case Classic:
		a.buildClassic(l, s.Slices)
		a.addServicePorts(s.Ports)
	case Headless:
		if !a.buildHeadless(l, s.Slices) {
			return nil
		}
	}
	if o.ClusterNames && s.Kind != ClusterSetIP {
		a.addClusterNames(s.Slices)
	}
	return a
}

func (a *Answers) family(ip netip.Addr) *addresses { return chooseFamily(ip, &a.v4, &a.v6) }

func (h *host) family(ip netip.Addr) *addresses { return chooseFamily(ip, &h.v4, &h.v6) }

func chooseFamily(ip netip.Addr, v4, v6 *addresses) *addresses {
	if ip.Is4() {
		return v4
	}
	return v6
}

func (s *addresses) add(ip netip.Addr) {
	s.width = uint8(ip.BitLen() / 8)
	s.raw = append(s.raw, ip.AsSlice()...)
}

// addServicePorts adds an SRV record with the service as target for each named port.
func (a *Answers) addServicePorts(ports []Port) {
	for _, p := range ports {
		if p.Name != "" {
			name := newPortName(p)
			if !slices.ContainsFunc(a.ports, func(q portName) bool { return q.left == name.left }) {
				a.ports = append(a.ports, name)
			}
		}
	}
}

// newPortName shares one copy of the names that most services have.
func newPortName(p Port) portName {
	protocol := "_" + strings.ToLower(p.Protocol)
	left := unique.Make("_" + strings.ToLower(p.Name) + "." + protocol).Value()
	return portName{left: left, protocol: left[len(left)-len(protocol):], number: p.Number}
}

// locatedEndpoint is an endpoint with what decides its position in an answer.
type locatedEndpoint struct {
	Endpoint
	cluster  string
	distance int
	weight   uint8
}

// buildClassic adds the ClusterIPs of the serving clusters. Clusters of weight 0 are left out while
// another serves.
func (a *Answers) buildClassic(l Locality, all []*Slice) {
	var serving []locatedEndpoint
	anyWeight := false
	for _, s := range all {
		for _, e := range s.Endpoints {
			serving = append(serving, locatedEndpoint{e, s.Cluster, l.distance(Classic, s.Cluster, e.Zone), s.Weight})
			anyWeight = anyWeight || s.Weight > 0
		}
	}
	if anyWeight {
		serving = slices.DeleteFunc(serving, func(e locatedEndpoint) bool { return e.weight == 0 })
	}
	a.setAddresses(serving)
}

// setAddresses sets the service's own addresses: each address once, nearest first.
func (a *Answers) setAddresses(endpoints []locatedEndpoint) {
	slices.SortFunc(endpoints, func(x, y locatedEndpoint) int {
		return cmp.Or(cmp.Compare(x.distance, y.distance), x.Addr.Compare(y.Addr), cmp.Compare(x.cluster, y.cluster))
	})
	seen := make(map[netip.Addr]bool, len(endpoints))
	endpoints = slices.DeleteFunc(endpoints, func(e locatedEndpoint) bool {
		repeated := seen[e.Addr]
		seen[e.Addr] = true
		return repeated
	})
	for _, is4 := range []bool{true, false} {
		var family []locatedEndpoint
		for _, e := range endpoints {
			if e.Addr.Is4() == is4 {
				family = append(family, e)
			}
		}
		if len(family) > 0 {
			*a.family(family[0].Addr) = packAddresses(family)
		}
	}
}

// packAddresses returns the addresses of endpoints of one family, which are sorted by distance.
func packAddresses(endpoints []locatedEndpoint) addresses {
	s := addresses{width: uint8(endpoints[0].Addr.BitLen() / 8)}
	s.raw = make([]byte, 0, len(endpoints)*int(s.width))
	var by ordering
	for i, e := range endpoints {
		s.raw = append(s.raw, e.Addr.AsSlice()...)
		if i > 0 && e.distance != endpoints[i-1].distance {
			by.ends = append(by.ends, i)
		}
		if e.weight != endpoints[0].weight && by.weights == nil {
			by.weights = make([]uint8, len(endpoints))
		}
	}
	for i := range by.weights {
		by.weights[i] = endpoints[i].weight
	}
	if by.ends != nil || by.weights != nil {
		s.order = &by
	}
	return s
}

// buildHeadless adds all ready endpoints and their names, and reports whether there are any.
func (a *Answers) buildHeadless(l Locality, all []*Slice) bool {
	endpoints := 0
	for _, s := range all {
		endpoints += len(s.Endpoints)
	}
	ready := make([]locatedEndpoint, 0, endpoints)
	a.hosts, a.byName = make([]host, 0, endpoints), make(map[string]int32, endpoints)
	for _, s := range sortedByCluster(all) {
		named := validCluster(s.Cluster)
		for _, e := range s.Endpoints {
			ready = append(ready, locatedEndpoint{Endpoint: e, cluster: s.Cluster, distance: l.distance(Headless, s.Cluster, e.Zone)})
			if !named {
				continue
			}
			if at, isNew, fits := a.addHost(hostname(e)+"."+s.Cluster, e.Addr); fits {
				a.hosts[at].remote = s.Cluster != l.Cluster
				a.addTargets(s.Ports, at, isNew)
				a.addNonTerminals(s.Cluster)
			}
		}
	}
	a.setAddresses(ready)
	return len(ready) > 0
}

// sortedByCluster returns slices in an order that does not depend on when they arrived.
func sortedByCluster(all []*Slice) []*Slice {
	return slices.SortedStableFunc(slices.Values(all), func(x, y *Slice) int { return cmp.Compare(x.Cluster, y.Cluster) })
}

// addTargets adds a host to the named ports of its slice. A host with several addresses is one
// target.
func (a *Answers) addTargets(ports []Port, at int32, isNew bool) {
	for _, p := range ports {
		if p.Name == "" {
			continue
		}
		name := newPortName(p)
		i := slices.IndexFunc(a.ports, func(q portName) bool { return q.left == name.left })
		if i < 0 {
			i = len(a.ports)
			a.ports = append(a.ports, name)
		}
		if t := (target{at, p.Number}); isNew || !slices.Contains(a.ports[i].targets, t) {
			a.ports[i].targets = append(a.ports[i].targets, t)
		}
	}
}

// addNonTerminals adds the names between the service's and its hosts'. They exist and have no
// records.
func (a *Answers) addNonTerminals(cluster string) {
	for _, name := range []string{cluster, cluster[strings.IndexByte(cluster, '.')+1:]} {
		if !slices.Contains(a.emptyNonTerminals, name) {
			a.emptyNonTerminals = append(a.emptyNonTerminals, name)
		}
	}
}

// addClusterNames adds a name for each cluster, with the addresses of its endpoints. They have no
// reverse names: endpoints of a headless service have more specific ones, and the reverse name of a
// ClusterIP belongs to its own cluster's DNS.
func (a *Answers) addClusterNames(all []*Slice) {
	if a.byName == nil {
		a.byName = map[string]int32{}
	}
	for _, s := range sortedByCluster(all) {
		if !validCluster(s.Cluster) {
			continue
		}
		for _, e := range s.Endpoints {
			if _, _, fits := a.addHost(s.Cluster, e.Addr); fits {
				a.addNonTerminals(s.Cluster)
			}
		}
	}
}

// addHost adds an address to the host with the given labels left of the service's name. It returns
// the host's index and whether the host is new; fits is false if its name would exceed maxName.
func (a *Answers) addHost(left string, ip netip.Addr) (at int32, isNew, fits bool) {
	at, found := a.byName[left]
	if !found {
		if len(left)+1+len(a.fqdn) > maxName {
			return 0, false, false
		}
		at = int32(len(a.hosts))
		fqdn := left + "." + a.fqdn
		a.hosts = append(a.hosts, host{fqdn: fqdn})
		a.byName[fqdn[:len(left)]] = at
	}
	if h := &a.hosts[at]; !h.has(ip) {
		h.family(ip).add(ip)
	}
	return at, !found, true
}

func (h *host) has(ip netip.Addr) bool {
	s := h.family(ip)
	for i := range s.len() {
		if own, _ := netip.AddrFromSlice(s.at(i)); own == ip {
			return true
		}
	}
	return false
}

var dashes = strings.NewReplacer(".", "-", ":", "-")

// hostname returns the first label of an endpoint's name: its hostname or, as in CoreDNS, its
// address with dashes.
func hostname(e Endpoint) string {
	if e.Hostname != "" {
		return strings.ToLower(e.Hostname)
	}
	return dashes.Replace(e.Addr.String())
}

// validCluster reports whether a cluster id can be part of a name: one or two labels of lower-case
// letters, digits and dashes.
func validCluster(id string) bool {
	labels := strings.Split(id, ".")
	if len(labels) > 2 {
		return false
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// reverseNames calls visit with every address that has a reverse name in the zone, and that name.
func (a *Answers) reverseNames(visit func(ip netip.Addr, name string)) {
	for _, ip := range a.reverse {
		visit(ip, a.fqdn)
	}
	for i := range a.hosts {
		h := &a.hosts[i]
		if !h.remote {
			continue
		}
		for _, s := range []*addresses{&h.v4, &h.v6} {
			for j := range s.len() {
				ip, _ := netip.AddrFromSlice(s.at(j))
				visit(ip, h.fqdn)
			}
		}
	}
}

// Endpoints returns how many addresses the service has.
func (a *Answers) Endpoints() int { return a.v4.len() + a.v6.len() }
