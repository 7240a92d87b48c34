package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// verdictTime is how long after its last renewal a member counts as dead everywhere, and for how
// long a member that returned may still be taken for dead.
const verdictTime = leaseDuration + renewEvery + 2*pollEvery + time.Second

// checker checks invariants after every write.
type checker struct {
	world *world
	// beginning is when the first exports had reached all members.
	beginning time.Time
	touched   map[place]bool
	imports   map[place]*importHistory
	exported  map[string]map[string]bool // the clusters that ever published a service
}

// place is a service in a member.
type place struct {
	member  *member
	service string
}

// importHistory is what an import was before.
type importHistory struct {
	addresses map[corev1.IPFamily]string
	addressed time.Time       // when it got the first of them
	expired   map[string]bool // addresses of an earlier service of that name
	families  []corev1.IPFamily
	decided   []mcsv1beta1.ServiceImportType // the types that it had, the present one last
	sources   map[string]bool                // the clusters whose ready endpoints it has
	served    map[endpointPort]bool          // the ports that it has or had endpoints for
	demoted   map[string]bool                // at the last check
	dropped   map[string]bool                // dead clusters whose endpoints it had, and has not any more
	// excused is when a user deleted a part of it; zero if it was complete again after that.
	excused time.Time
	// recordDeleted is true if a user deleted a record of the service: a backup from that time
	// lacks it, or has its former addresses.
	recordDeleted bool
	annotated     string // the uid of the ServiceImport that another controller annotated
}

// endpointPort is a port of an import in a family.
type endpointPort struct {
	family   corev1.IPFamily
	name     string
	protocol corev1.Protocol
}

func newChecker(w *world) *checker {
	return &checker{world: w, touched: map[place]bool{}, imports: map[place]*importHistory{}, exported: map[string]map[string]bool{}}
}

func (c *checker) history(p place) *importHistory {
	h := c.imports[p]
	if h == nil {
		h = &importHistory{
			addresses: map[corev1.IPFamily]string{},
			expired:   map[string]bool{}, sources: map[string]bool{}, dropped: map[string]bool{},
		}
		c.imports[p] = h
	}
	return h
}

func (c *checker) deletedByUser(m *member, service string) {
	c.history(place{m, service}).excused = time.Now()
}
func (c *checker) annotated(m *member, service, uid string) {
	c.history(place{m, service}).annotated = uid
}
func (c *checker) recordDeleted(service string) {
	for _, m := range c.world.members {
		h := c.history(place{m, service})
		h.excused, h.recordDeleted = time.Now(), true
	}
}

// brokerSetBack ends what is known of dropped clusters: the restored leases of dead members look
// like renewals.
func (c *checker) brokerSetBack() {
	for _, h := range c.imports {
		clear(h.dropped)
		if h.recordDeleted {
			h.excused = time.Now()
			h.expire()
		}
	}
}

// touch records what has to be checked after a write.
func (c *checker) touch(m *member, obj client.Object) {
	switch o := obj.(type) {
	case *v1alpha1.ExportRecord:
		c.recordWritten(o)
	case *mcsv1beta1.ServiceImport:
		if m != nil {
			c.touched[place{m, o.Name}] = true
		}
	case *discoveryv1.EndpointSlice:
		if service, ok := objects.ImportedService(o); ok && m != nil {
			c.touched[place{m, service.Name}] = true
		}
	}
}

func (c *checker) recordWritten(r *v1alpha1.ExportRecord) {
	name := r.Spec.ServiceName
	if c.exported[name] == nil {
		c.exported[name] = map[string]bool{}
	}
	c.exported[name][string(r.Spec.ClusterID)] = true
	left := c.world.records(name)
	for _, r := range left {
		if m := c.world.memberOf(string(r.Spec.ClusterID)); m.alive() && m.deadSince.IsZero() && time.Since(m.steadySince) > repairTime {
			return // it takes over what this record claimed
		}
	}
	released := func(ip string) bool {
		return !slices.ContainsFunc(left, func(r *v1alpha1.ExportRecord) bool { return slices.Contains(r.Spec.ClusterSetIPs, ip) })
	}
	for _, m := range c.world.members {
		h := c.history(place{m, name})
		for _, ip := range r.Spec.ClusterSetIPs { // caches still show them
			h.expired[ip] = released(ip)
		}
		if len(left) == 0 {
			h.expire()
		}
	}
}

// expire forgets the addresses: the import may still have them for a while.
func (h *importHistory) expire() {
	for _, ip := range h.addresses {
		h.expired[ip] = true
	}
	clear(h.addresses)
}

// check checks everything that was written since the last call.
func (c *checker) check() {
	if len(c.touched) == 0 || c.world.failure != nil {
		return
	}
	for _, m := range c.world.members {
		for _, service := range c.world.services {
			if p := (place{m, service}); c.touched[p] {
				c.checkImport(p)
			}
		}
	}
	clear(c.touched)
}

func (c *checker) checkImport(p place) {
	si := lookup[*mcsv1beta1.ServiceImport](p.member.server, namespace, p.service)
	imported := p.member.imported(p.service)
	c.checkSources(p, imported)
	if si != nil {
		c.checkAddresses(p, si)
		c.checkDecided(p, si)
	}
	c.checkServed(p, si, imported)
	c.checkDead(p, si, imported)
}

func (m *member) imported(service string) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	each(m.server, func(s *discoveryv1.EndpointSlice) {
		if of, ok := objects.ImportedService(s); ok && of.Name == service {
			out = append(out, s)
		}
	})
	return out
}

func (w *world) memberOf(id string) *member {
	for _, m := range w.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// records returns the broker's records of a service.
func (w *world) records(service string) []*v1alpha1.ExportRecord {
	var out []*v1alpha1.ExportRecord
	each(w.broker, func(r *v1alpha1.ExportRecord) {
		if r.Spec.ServiceName == service {
			out = append(out, r)
		}
	})
	return out
}

func (c *checker) checkSources(p place, imported []*discoveryv1.EndpointSlice) {
	for _, s := range imported {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		from := c.world.memberOf(source)
		if from == nil || !c.exported[p.service][source] && from != p.member {
			c.world.fail(ruleSource, "%s has endpoints of %s from %q, which never published it", p.member.id, p.service, source)
			return
		}
		for _, e := range s.Endpoints {
			own := from.podAddress(p.service, corev1.IPFamily(s.AddressType), 0)
			if !strings.HasPrefix(e.Addresses[0], own[:len(own)-1]) {
				c.world.fail(ruleSource, "%s attributes %s of %s to %s", p.member.id, e.Addresses[0], p.service, source)
			}
		}
	}
}

// claimTime is how long the address of a new service may change. Clusters that export it within the
// same second claim addresses before they see each other, and API servers keep ages in seconds.
const claimTime = 2 * time.Second

func (c *checker) checkAddresses(p place, si *mcsv1beta1.ServiceImport) {
	h := c.history(p)
	derives := objects.DataPlaneOf(p.member.membership.DataPlane).DerivesService
	if derives && !slices.Equal(h.families, si.Spec.IPFamilies) {
		clear(h.addresses) // a Service releases its address with the family
	}
	h.families = si.Spec.IPFamilies
	maps.DeleteFunc(h.addresses, func(f corev1.IPFamily, _ string) bool { return !slices.Contains(h.families, f) }) // free again
	if len(h.addresses) == 0 {
		h.addressed = time.Now()
	}
	for i, ip := range si.Spec.IPs {
		family := si.Spec.IPFamilies[i]
		// A broker that was set back may have a record of an earlier service of that name.
		// One from before a family was added lacks the address of that family, which the import alone has
		// then, and a user may delete that.
		restored := c.world.broker.epoch > 0 && (h.expired[ip] || !h.excused.IsZero())
		before := h.addresses[family]
		if before != "" && before != ip && !h.expired[before] && !restored && time.Since(h.addressed) > claimTime {
			c.world.fail(ruleStable, "the address of %s in %s changed from %s to %s", p.service, p.member.id, before, ip)
		}
		h.addresses[family] = ip
		each(p.member.server, func(other *mcsv1beta1.ServiceImport) {
			if other.Name != si.Name && slices.Contains(other.Spec.IPs, ip) {
				c.world.fail(ruleUnique, "%s and %s have the same address %s in %s", other.Name, si.Name, ip, p.member.id)
			}
		})
	}
}

// checkDecided checks that a calm service does not return to a type that it had: its exporters do
// not change, so the type changes only when a dead cluster is demoted. A record that was restored,
// or deleted and published again, has the age that it had before its cluster yielded.
func (c *checker) checkDecided(p place, si *mcsv1beta1.ServiceImport) {
	h := c.history(p)
	if n := len(h.decided); n > 0 && h.decided[n-1] == si.Spec.Type {
		return
	}
	before := slices.Contains(h.decided, si.Spec.Type)
	h.decided = append(h.decided, si.Spec.Type)
	calm := slices.Index(c.world.services, p.service) < c.world.calm && !c.beginning.IsZero()
	if before && calm && c.world.broker.epoch == 0 && !h.recordDeleted && len(c.world.demoted()) == 0 {
		c.world.fail(ruleDecided, "%s in %s is %s again, after it was %s", p.service, p.member.id, si.Spec.Type, h.decided[len(h.decided)-2])
	}
}

// repairTime is how long it takes until all agents have noticed what a user deleted.
const repairTime = 10 * time.Second

// checkServed checks the ports of calm services. Their exporters and endpoints do not change, so
// each port that any of them offers has an endpoint at all times.
func (c *checker) checkServed(p place, si *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice) {
	if c.beginning.IsZero() || slices.Index(c.world.services, p.service) >= c.world.calm {
		return
	}
	why := c.unserved(p, si, imported)
	h := c.history(p)
	switch {
	case why == "" && time.Since(h.excused) > repairTime && (!h.recordDeleted || c.world.allPublished(p.service)):
		h.excused = time.Time{}
	case why != "" && h.excused.IsZero():
		c.world.fail(ruleServed, "%s in %s: %s", p.service, p.member.id, why)
	}
}

// allPublished reports whether the broker has the records of all exporters of a service.
func (w *world) allPublished(service string) bool {
	published := map[string]bool{}
	for _, r := range w.records(service) {
		published[string(r.Spec.ClusterID)] = true
	}
	return !slices.ContainsFunc(w.offers(service), func(o offer) bool { return !published[o.member.id] })
}

// unserved says which port of an import has no endpoint although a cluster offers it.
func (c *checker) unserved(p place, si *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice) string {
	offers := c.world.offers(p.service)
	if si == nil {
		if len(offers) == 0 {
			return ""
		}
		return "there is no ServiceImport"
	}
	h, before := c.history(p), c.history(p).served
	h.served = map[endpointPort]bool{}
	why := ""
	for _, port := range si.Spec.Ports {
		for _, family := range si.Spec.IPFamilies {
			key := endpointPort{family, port.Name, port.Protocol}
			if h.served[key] = len(servers(imported, family, port.Name, port.Protocol)) > 0; h.served[key] || !before[key] {
				continue // a port that is new gets its endpoints a moment later
			}
			h.served[key] = true
			offered := slices.ContainsFunc(offers, func(o offer) bool {
				return slices.Contains(clustersOf(si), o.member.id) && o.family == family && o.port.Name == port.Name &&
					o.port.Port == port.Port && o.port.Protocol == port.Protocol && o.counts(c.world, p.service, si.Spec.Type)
			})
			if offered {
				why = fmt.Sprintf("port %s has no %s endpoint", port.Name, family)
			}
		}
	}
	return why
}

// offer is a port of a service that a cluster has ready endpoints for.
type offer struct {
	member *member
	family corev1.IPFamily
	port   corev1.ServicePort
}

// counts reports whether the offer takes part in the service. The status of the import lists its
// cluster a moment too long: it may be left out because the import has another type now. And a
// cluster may have died before it published its endpoints.
func (o offer) counts(w *world, service string, imported mcsv1beta1.ServiceImportType) bool {
	gone := !o.member.deadSince.IsZero() || w.demoted()[o.member.id]
	return (!gone || w.published(service, o)) && !w.hasOtherType(service, o.member.id, imported) &&
		w.carriesPort(service, o.member.id, o.port.Name, o.port.Protocol)
}

func (w *world) hasOtherType(service, cluster string, imported mcsv1beta1.ServiceImportType) bool {
	return slices.ContainsFunc(w.records(service), func(r *v1alpha1.ExportRecord) bool {
		return string(r.Spec.ClusterID) == cluster && r.Spec.Type != imported
	})
}

// carriesPort reports whether a cluster serves a port of a service whether or not the demotion of
// clusters counts already: it may lose or gain the port by that.
func (w *world) carriesPort(service, cluster, port string, protocol corev1.Protocol) bool {
	demoted := w.demoted()
	if len(demoted) == 0 {
		return true
	}
	records := w.records(service)
	return merge.Merge(records).CarriesPort(cluster, port, protocol) &&
		merge.Merge(merge.Demote(records, demoted)).CarriesPort(cluster, port, protocol)
}

// demoted returns the clusters that any member demotes.
func (w *world) demoted() map[string]bool {
	out := map[string]bool{}
	each(w.broker, func(member *v1alpha1.Cluster) {
		for _, cluster := range member.Status.Demoted {
			out[cluster] = true
		}
	})
	return out
}

// offers returns what the exporters of a service offer, read from their own clusters.
func (w *world) offers(service string) []offer {
	var out []offer
	for _, m := range w.members {
		svc := lookup[*corev1.Service](m.server, namespace, service)
		if svc == nil || lookup[*mcsv1beta1.ServiceExport](m.server, namespace, service) == nil {
			continue
		}
		for _, family := range svc.Spec.IPFamilies {
			s := lookup[*discoveryv1.EndpointSlice](m.server, namespace, service+"-"+string(family))
			if s == nil || !reachable.HasReadyEndpoint(s) {
				continue
			}
			for _, port := range svc.Spec.Ports {
				out = append(out, offer{m, family, port})
			}
		}
	}
	return out
}

// servers returns the clusters that serve a port in a family according to imported slices.
func servers(imported []*discoveryv1.EndpointSlice, family corev1.IPFamily, name string, protocol corev1.Protocol) []string {
	var out []string
	for _, s := range imported {
		if string(s.AddressType) == string(family) && reachable.HasReadyEndpoint(s) && hasPort(s, name, protocol) {
			out = append(out, s.Labels[mcsv1beta1.LabelSourceCluster])
		}
	}
	return out
}

func hasPort(s *discoveryv1.EndpointSlice, name string, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		return ptr.Deref(p.Name, "") == name && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == protocol
	})
}

// checkDead checks that no endpoint of a dead cluster comes back while a living one serves its
// ports.
func (c *checker) checkDead(p place, si *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice) {
	h, demoted := c.history(p), c.world.demoted()
	now := map[string]bool{}
	for _, s := range imported {
		if reachable.HasReadyEndpoint(s) {
			now[s.Labels[mcsv1beta1.LabelSourceCluster]] = true
		}
	}
	for _, m := range c.world.members {
		dead := !m.deadSince.IsZero() && time.Since(m.deadSince) > verdictTime
		switch {
		case m.deadSince.IsZero(), demoted[m.id] && !h.demoted[m.id]: // ports may change hands
			delete(h.dropped, m.id)
		case !h.excused.IsZero(): // a user deleted a slice, or a record, with which ports change hands
		case dead && h.sources[m.id] && !now[m.id] && si != nil && p.member.alive():
			h.dropped[m.id] = true
		case h.dropped[m.id] && now[m.id] && c.replaceable(p, m.id, imported):
			c.world.fail(ruleDead, "endpoints of %s from the dead cluster %s came back in %s", p.service, m.id, p.member.id)
		}
		if h.sources[m.id] && !now[m.id] && c.mustKeep(p, m) {
			c.world.fail(ruleCutOff, "%s, which is cut off, dropped the endpoints of %s from the living cluster %s", p.member.id, p.service, m.id)
		}
	}
	h.sources, h.demoted = now, demoted
}

// mustKeep reports whether a member must keep what it imports of a calm service from a cluster: it
// is cut off itself, so that it cannot know whether the other one is alive, and that one is.
func (c *checker) mustKeep(p place, source *member) bool {
	calm := !c.beginning.IsZero() && slices.Index(c.world.services, p.service) < c.world.calm && c.history(p).excused.IsZero()
	return calm && p.member.cutOff && source != p.member && source.alive() && source.deadSince.IsZero() &&
		time.Since(source.steadySince) > 2*verdictTime
}

// replaceable reports whether living clusters serve every port of a cluster's slices, as far as the
// import shows.
func (c *checker) replaceable(p place, cluster string, imported []*discoveryv1.EndpointSlice) bool {
	for _, s := range imported {
		if s.Labels[mcsv1beta1.LabelSourceCluster] != cluster {
			continue
		}
		for _, port := range s.Ports {
			served := slices.ContainsFunc(servers(imported, corev1.IPFamily(s.AddressType), *port.Name, *port.Protocol), func(id string) bool {
				m := c.world.memberOf(id)
				return id != cluster && (m == p.member || m.alive() && m.deadSince.IsZero() && time.Since(m.steadySince) > 2*verdictTime)
			})
			if !served {
				return false
			}
		}
	}
	return true
}
