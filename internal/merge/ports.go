package merge

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// maxPorts bounds the union of ports: that of 500 records with 256 ports each, which the CRD
// allows, would be too large for an API server. A thousand ports stay well below 1 MiB with the
// longest names.
const maxPorts = 1024

// fewPorts is the size up to which searching a list is faster than an index. Almost every Service
// has fewer.
const fewPorts = 16

// port is a valid port of a Service. Its protocol is set; no application protocol is the empty one.
type port struct {
	name     string
	protocol corev1.Protocol
	number   int32
	app      string
}

// socket is a protocol and number, which two ports of one Service may not share.
type socket struct {
	protocol corev1.Protocol
	number   int32
}

func (p port) socket() socket { return socket{p.protocol, p.number} }

// same reports whether traffic for one port may go to the other. The application protocol is a hint
// and does not count.
func (p port) same(q port) bool { return p.name == q.name && p.socket() == q.socket() }

// excludes reports whether one Service cannot have both ports.
func (p port) excludes(q port) bool { return p.name == q.name || p.socket() == q.socket() }

func (p port) compare(q port) int {
	return cmp.Or(cmp.Compare(p.number, q.number), cmp.Compare(p.protocol, q.protocol), cmp.Compare(p.name, q.name),
		cmp.Compare(p.app, q.app))
}

// sortPorts returns the ports by number. Their order in a Service has no meaning.
func sortPorts(ports []port) []port {
	sorted := slices.Clone(ports)
	slices.SortFunc(sorted, port.compare)
	return sorted
}

func (p port) String() string {
	var text [maxPortText]byte
	b := text[:0]
	if p.name != "" {
		b = append(append(b, p.name...), ' ')
	}
	b = append(strconv.AppendInt(b, int64(p.number), 10), '/')
	b = append(b, p.protocol...)
	if p.app != "" {
		b = append(append(append(b, " ("...), shortItem(p.app)...), ')')
	}
	return string(b)
}

// maxPortText is the room for a name of 63 bytes, a number of 5, a protocol of 4, an application
// protocol and the separators.
const maxPortText = 63 + 5 + 4 + maxItem + len("…") + 8

// readPorts sets the valid ports of a record. Records with equal ports share one slice; mostly all
// records do.
func (m *member) readPorts(candidates ...*member) {
	for _, other := range candidates {
		if other != m && slices.EqualFunc(m.Ports, other.Ports, sameText) {
			m.ports = other.ports
			return
		}
	}
	m.ports = validPorts(m.Ports)
}

func sameText(a, b v1alpha1.ServicePort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol &&
		deref(a.AppProtocol) == deref(b.AppProtocol)
}

// validPorts returns the ports that a Service can have. The CRD refuses others, but the merge must
// not depend on that. Of ports that exclude each other the same one stays in any order.
func validPorts(in []v1alpha1.ServicePort) []port {
	out := make([]port, 0, len(in))
	for i := range in {
		if p, ok := validPort(&in[i]); ok {
			out = append(out, p)
		}
	}
	if haveConflicts(out) {
		return withoutConflicts(out)
	}
	return out
}

// haveConflicts reports whether no Service can have these ports together.
func haveConflicts(ports []port) bool {
	if len(ports) <= fewPorts {
		for i, p := range ports {
			if (p.name == "" && len(ports) > 1) || slices.ContainsFunc(ports[:i], p.excludes) {
				return true
			}
		}
		return false
	}
	set := newPortSet(len(ports))
	return slices.ContainsFunc(ports, func(p port) bool { return !set.add(p, 0) })
}

// withoutConflicts returns ports that a Service can have together: named ones rather than unnamed
// ones, then those with lower numbers. Their order stays.
func withoutConflicts(in []port) []port {
	sorted := sortPorts(in)
	slices.SortStableFunc(sorted, func(a, b port) int {
		if (a.name == "") == (b.name == "") {
			return 0
		}
		return cmp.Compare(b.name, a.name)
	})
	set := newPortSet(len(in))
	for _, p := range sorted {
		set.add(p, 0)
	}
	out := make([]port, 0, len(set.list))
	for _, p := range in {
		if set.has(p) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// isLabel reports whether a name is a DNS label (RFC 1123) as Kubernetes has them. Every merge
// checks every port, so this is no regular expression.
func isLabel(name string) bool {
	for i := range len(name) {
		c := name[i]
		inside := i > 0 && i < len(name)-1
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || !inside) {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 63
}

func validPort(in *v1alpha1.ServicePort) (port, bool) {
	p := port{name: in.Name, protocol: in.Protocol, number: in.Port, app: deref(in.AppProtocol)}
	switch p.protocol {
	case "":
		p.protocol = corev1.ProtocolTCP
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return port{}, false
	}
	if p.number < 1 || p.number > 65535 || (p.name != "" && !isLabel(p.name)) {
		return port{}, false
	}
	if p.app != "" && len(content.IsLabelKey(p.app)) > 0 {
		p.app = "" // the API server would refuse it; the port is valid without the hint
	}
	return p, true
}

// portSet holds ports that can be the ports of one Service.
type portSet struct {
	list []port
	from []int // the index of the member that each port comes from
	// byName and bySocket index the list once it is long.
	byName   map[string]int
	bySocket map[socket]int
}

func newPortSet(size int) portSet {
	return portSet{list: make([]port, 0, size), from: make([]int, 0, size)}
}

// add adds a port and reports whether it did. It does not if the set has the name or the socket
// already, or if only one of the ports would be unnamed: the API server refuses such a Service.
func (s *portSet) add(p port, from int) bool {
	switch {
	case len(s.list) >= maxPorts:
		return false
	case len(s.list) > 0 && (p.name == "" || s.list[0].name == ""):
		return false
	case s.taken(p):
		return false
	}
	if len(s.list) == fewPorts {
		s.buildIndex()
	}
	if s.byName != nil {
		s.byName[p.name] = len(s.list)
		s.bySocket[p.socket()] = len(s.list)
	}
	s.list = append(s.list, p)
	s.from = append(s.from, from)
	return true
}

func (s *portSet) buildIndex() {
	s.byName = make(map[string]int, 2*len(s.list))
	s.bySocket = make(map[socket]int, 2*len(s.list))
	for i, p := range s.list {
		s.byName[p.name] = i
		s.bySocket[p.socket()] = i
	}
}

func (s *portSet) taken(p port) bool {
	if s.byName != nil {
		_, name := s.byName[p.name]
		_, sock := s.bySocket[p.socket()]
		return name || sock
	}
	return slices.ContainsFunc(s.list, p.excludes)
}

// named returns the port of that name.
func (s *portSet) named(name string) (port, bool) {
	if s.byName != nil {
		i, ok := s.byName[name]
		if !ok {
			return port{}, false
		}
		return s.list[i], true
	}
	for _, p := range s.list {
		if p.name == name {
			return p, true
		}
	}
	return port{}, false
}

// has reports whether the set has exactly this port, including the application protocol.
func (s *portSet) has(p port) bool {
	q, ok := s.named(p.name)
	return ok && p == q
}

// mergePorts sets the ports of the service. With a clusterset IP, or headless, the service has
// every port that any cluster serves, and its traffic goes to those clusters. In classic mode a
// client gets one cluster's ClusterIP for all ports, so the service has only the ports that every
// cluster has.
func (r *Result) mergePorts(members []*member) Conflict {
	set := newPortSet(len(members[0].ports))
	for _, p := range members[0].ports {
		set.add(p, 0)
	}
	agree := make([]bool, len(members))
	for i, m := range members {
		agree[i] = sameSet(m.ports, members[0].ports)
		if agree[i] {
			continue
		}
		if r.Mode == ModeClassic {
			set.retain(m.ports)
		} else {
			set.addAll(m.ports, i)
		}
	}
	r.Spec.Ports = make([]mcsv1beta1.ServicePort, len(set.list))
	for i, p := range set.list {
		r.Spec.Ports[i] = mcsv1beta1.ServicePort{Name: p.name, Protocol: p.protocol, Port: p.number}
		if p.app != "" {
			r.Spec.Ports[i].AppProtocol = &p.app
		}
	}
	return r.portConflict(members, agree, &set)
}

// addAll adds the ports that fit. Ports of one record do not exclude each other, so their order
// matters only if the set becomes full.
func (s *portSet) addAll(ports []port, from int) {
	if len(s.list)+len(ports) > maxPorts {
		ports = sortPorts(ports)
	}
	for _, p := range ports {
		s.add(p, from)
	}
}

// retain removes the ports that the other list does not have. The application protocol may differ.
func (s *portSet) retain(ports []port) {
	other := newPortSet(len(ports))
	for _, p := range ports {
		other.add(p, 0)
	}
	kept := newPortSet(len(s.list))
	for i, p := range s.list {
		if q, ok := other.named(p.name); ok && p.same(q) {
			kept.add(p, s.from[i])
		}
	}
	*s = kept
}

// sameSet reports whether two lists of valid ports differ at most in order.
func sameSet(a, b []port) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.Equal(a, b) {
		return true
	}
	if len(a) <= fewPorts {
		return !slices.ContainsFunc(a, func(p port) bool { return !slices.Contains(b, p) })
	}
	return slices.Equal(sortPorts(a), sortPorts(b))
}

func (r *Result) portConflict(members []*member, agree []bool, set *portSet) Conflict {
	if !slices.Contains(agree, false) {
		return Conflict{}
	}
	oldest := members[0]
	c := Conflict{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Winner: oldest.cluster()}
	merged := !sameSet(set.list, oldest.ports)
	switch {
	case !merged:
		c.Won = describePorts(set.list)
		c.lead = "ports " + c.Won + " from " + shortID(c.Winner) + " win"
	case r.Mode == ModeClassic:
		c.Won = describePorts(set.list)
		c.lead = "ports in common are " + c.Won
		c.note = "without a clusterset IP a service has only the ports that all clusters have"
	default:
		c.Won = describeUnion(set, members)
		c.lead = "ports taken together are " + c.Won
	}
	c.Disagree = make([]Disagreement, 0, len(members))
	for i, m := range members {
		if merged || !agree[i] {
			c.Disagree = append(c.Disagree, Disagreement{Cluster: m.cluster(), Value: describePorts(m.ports)})
		}
	}
	return c
}

func describePorts(ports []port) string {
	sorted := sortPorts(ports)
	return list(len(sorted), maxValue, func(i int) string { return sorted[i].String() })
}

// describeUnion returns the ports of the set as text, with the clusters that they come from.
func describeUnion(set *portSet, members []*member) string {
	return list(len(set.list), maxWon, func(i int) string {
		if i > 0 && set.from[i] == set.from[i-1] {
			return set.list[i].String()
		}
		return "from " + shortID(members[set.from[i]].cluster()) + " " + set.list[i].String()
	})
}

// CarriesPort reports whether the imported slices of a cluster may have the port of that name. They
// may not if another cluster's port of that name won with other values: slices match ports by name,
// so clients would connect to the wrong number. They may if only the application protocol differs.
// A cluster that is left out has no ports. An empty protocol means TCP.
func (r Result) CarriesPort(cluster, portName string, protocol corev1.Protocol) bool {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	i := r.find(cluster)
	if i < 0 {
		return false
	}
	for _, p := range r.offers[i] {
		if p.name != portName || p.protocol != protocol {
			continue
		}
		return slices.ContainsFunc(r.Spec.Ports, func(q mcsv1beta1.ServicePort) bool {
			return q.Name == portName && q.Protocol == protocol && q.Port == p.number
		})
	}
	return false
}
