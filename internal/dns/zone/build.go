package zone

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unique"
)

// maxName is the longest name in text form, with the dot at its end: 255 bytes on the wire (RFC 1035, 2.3.4), which count one
// for each label and one for the root.
const maxName = 254

// Answers are the prepared answers of one service. They never change.
type Answers struct {
	key    string // name.namespace
	fqdn   string
	kind   Kind
	v4, v6 addresses
	ports  []portName
	// hosts are the endpoints of a headless service that have a name, by the labels left of the service's.
	hosts  []host
	byName map[string]int32
	// inner are labels left of the service's that have no records but names below them.
	emptyNonTerminals []string
	// reverse are the addresses of a ClusterSetIP service whose names are ours to tell.
	reverse []netip.Addr
}

// portName is a port with records.
type portName struct {
	left     string // _port._protocol
	protocol string // _protocol
	number   uint16
	// targets are the endpoints of a headless service that have the port; nil where the target is the service itself.
	targets []target
}

type target struct {
	host   int32
	number uint16
}

// host is a name below a service: an endpoint of a headless one, or a cluster where those are wanted.
type host struct {
	fqdn   string
	v4, v6 addresses
	// remote hosts are in other clusters; the cluster's own DNS knows the others' addresses.
	remote bool
}

// Build prepares the answers of a service. It returns nil when no name of the service exists: for a headless service without a
// ready endpoint, as the specification wants it.
func Build(o Options, l Locality, s Service) *Answers {
	key := strings.ToLower(Key(s.Namespace, s.Name))
	a := &Answers{key: key, fqdn: key + ".svc." + o.Name, kind: s.Kind}
	if len(a.fqdn) > maxName {
		return nil // nobody can ask for it
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

// servicePorts gives the service's own name to each named port.
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

// newPortName keeps one copy of texts that most services share.
func newPortName(p Port) portName {
	protocol := "_" + strings.ToLower(p.Protocol)
	left := unique.Make("_" + strings.ToLower(p.Name) + "." + protocol).Value()
	return portName{left: left, protocol: left[len(left)-len(protocol):], number: p.Number}
}

// located is an endpoint with what decides about its place in an answer.
type locatedEndpoint struct {
	Endpoint
	cluster  string
	distance int
	weight   uint8
}

// classic lists the ClusterIPs of the clusters that serve, but for those of weight 0 while another serves.
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

// fill takes endpoints into the service's own addresses: each address once, nearest first.
func (a *Answers) setAddresses(endpoints []locatedEndpoint) {
	slices.SortFunc(endpoints, func(x, y locatedEndpoint) int {
		return cmp.Or(cmp.Compare(x.distance, y.distance), x.Addr.Compare(y.Addr), cmp.Compare(x.cluster, y.cluster))
	})
	seen := make(map[netip.Addr]bool, len(endpoints))
	endpoints = slices.DeleteFunc(endpoints, func(e locatedEndpoint) bool {
		again := seen[e.Addr]
		seen[e.Addr] = true
		return again
	})
	for _, is4 := range []bool{true, false} {
		var members []locatedEndpoint
		for _, e := range endpoints {
			if e.Addr.Is4() == is4 {
				members = append(members, e)
			}
		}
		if len(members) > 0 {
			*a.family(members[0].Addr) = packAddresses(members)
		}
	}
}

// packed are addresses of one family, sorted by distance.
func packAddresses(members []locatedEndpoint) addresses {
	s := addresses{width: uint8(members[0].Addr.BitLen() / 8)}
	s.raw = make([]byte, 0, len(members)*int(s.width))
	var by ordering
	for i, e := range members {
		s.raw = append(s.raw, e.Addr.AsSlice()...)
		if i > 0 && e.distance != members[i-1].distance {
			by.ends = append(by.ends, i)
		}
		if e.weight != members[0].weight && by.weights == nil {
			by.weights = make([]uint8, len(members))
		}
	}
	for i := range by.weights {
		by.weights[i] = members[i].weight
	}
	if by.ends != nil || by.weights != nil {
		s.order = &by
	}
	return s
}

// headless lists all ready endpoints, names each, and says whether there are any.
func (a *Answers) buildHeadless(l Locality, all []*Slice) bool {
	var ready []locatedEndpoint
	a.byName = map[string]int32{}
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

// sorted brings slices into an order that does not depend on when they came.
func sortedByCluster(all []*Slice) []*Slice {
	return slices.SortedStableFunc(slices.Values(all), func(x, y *Slice) int { return cmp.Compare(x.Cluster, y.Cluster) })
}

// targets notes that a host has the named ports of its slice. A host with several addresses is one target.
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

// passBy notes the names between the service's and its hosts': they exist and have no records.
func (a *Answers) addNonTerminals(cluster string) {
	for _, name := range []string{cluster, cluster[strings.IndexByte(cluster, '.')+1:]} {
		if !slices.Contains(a.emptyNonTerminals, name) {
			a.emptyNonTerminals = append(a.emptyNonTerminals, name)
		}
	}
}

// clusters adds a name for each cluster, with the addresses it contributes. These have no reverse names: a headless service's
// endpoints have better ones, and a ClusterIP belongs to its own cluster's DNS.
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

// addHost gives an address to the host with the labels left of the service's name; it tells where the host is, whether it is new,
// and false in the end when its name would be too long to be asked for.
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

// hostname is the first label of an endpoint's name: its hostname or, as CoreDNS has it, its address with dashes.
func hostname(e Endpoint) string {
	if e.Hostname != "" {
		return strings.ToLower(e.Hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Addr.String())
}

// validCluster tells ids that can be part of a name: one or two labels of small letters, digits and dashes.
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

// reverseNames calls visit with every address whose name is ours to tell, and that name.
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

// Endpoints is how many addresses the service answers with.
func (a *Answers) Endpoints() int { return a.v4.len() + a.v6.len() }
