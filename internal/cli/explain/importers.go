package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// explainImporters adds the clusters that import the service, or should.
func (e *explainer) explainImporters() {
	for i := range e.Clusters {
		c := &e.Clusters[i]
		if c.Problem == "" && !c.Member && c.Export == nil {
			e.findAs(Warn, notMember, c.ID,
				fmt.Sprintf("cluster %s is not a member of a clusterset: nothing is imported there", c.ID), "seamark join --help")
		}
		if c.Problem != "" || !c.Member || (e.merged.Empty() && c.Import == nil) {
			continue
		}
		if e.stale(c.ID) && !slices.Contains(e.merged.Clusters, c.ID) && c.Import != nil {
			e.findAs(Warn, agentSilent, c.ID, fmt.Sprintf("cluster %s renewed its lease %s ago: its imports do not follow changes",
				c.ID, duration.HumanDuration(e.lives[c.ID].Age)), c.agentCure())
		}
		im := Importer{Cluster: c.ID, DNSName: e.dnsName(c), DataPlane: c.DataPlane, Programmed: "-", DNS: "-"}
		if c.Import != nil {
			im.IPs = c.Import.Spec.IPs
			im.Endpoints = bySource(c)
		}
		im.State = e.judgeImport(c)
		if c.Import != nil && objects.IsManagedImport(c.Import) {
			im.Programmed = e.judgeDataPlane(c)
		}
		im.DNS = e.judgeDNS(c)
		e.report.Importers = append(e.report.Importers, im)
	}
}

// bySource returns how many imported endpoints a cluster holds, by source cluster.
func bySource(c *Cluster) map[string]int {
	out := map[string]int{}
	for i := range c.Imported {
		out[c.Imported[i].Labels[mcsv1beta1.LabelSourceCluster]] += len(c.Imported[i].Endpoints)
	}
	return out
}

// judgeImport returns the state of an import in words, and adds what is wrong with it.
func (e *explainer) judgeImport(c *Cluster) string {
	switch {
	case c.NamespaceMissing:
		e.find(namespaceMissing, c.ID,
			fmt.Sprintf("there is no namespace %s in cluster %s, so the service is not imported there", e.Namespace, c.ID),
			c.kubectl("create namespace %s", e.Namespace)+" (or let the agent create namespaces: --create-namespaces)")
		return "not imported: no namespace"
	case c.Import == nil && e.reserved(c):
		e.find(namespaceReserved, c.ID,
			fmt.Sprintf("%s is a system namespace: its services are not imported unless the broker's admin allows it", e.Namespace),
			fmt.Sprintf("seamark broker invite %s --renew --allow-namespaces %s,…", c.ID, e.Namespace))
		return "not imported: system namespace"
	case c.Import == nil:
		e.importMissing(c)
		return "not imported"
	case !objects.IsManagedImport(c.Import):
		e.find(importForeign, c.ID,
			fmt.Sprintf("the ServiceImport %s/%s in %s was not created by Seamark, and no cluster exports the service", e.Namespace, e.Name, c.ID),
			"export the service, and the agent takes it over; or delete it: "+c.kubectl("-n %s delete serviceimport %s", e.Namespace, e.Name))
		return "not managed by Seamark"
	}
	ready := meta.FindStatusCondition(c.Import.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	if ready == nil {
		e.find(importNotReady, c.ID, "the ServiceImport has no conditions yet", "if that lasts longer than some seconds: "+c.agentCure())
		e.addWaits(c, importReconciler)
		return "being imported"
	}
	e.judgeHeld(c)
	refused := e.judgeRefused(c)
	if ready.Status != metav1.ConditionTrue {
		return e.judgeNotReady(c, ready)
	}
	e.judgeEndpoints(c, refused)
	return "imported"
}

// reserved reports whether a cluster may import from the namespace only if the broker's admin
// allows it, and the admin has not.
func (e *explainer) reserved(c *Cluster) bool {
	m := e.Broker.member(c.ID)
	return objects.IsReserved(e.Namespace) && (m == nil || !slices.Contains(m.Spec.AllowedNamespaces, e.Namespace))
}

func (e *explainer) importMissing(c *Cluster) {
	detail := fmt.Sprintf("the clusterset has the service, but there is no ServiceImport in cluster %s", c.ID)
	cure := "if that lasts longer than some seconds: " + c.agentCure()
	if e.stale(c.ID) || (c.Agent == nil && e.heartbeat(c.ID) != "alive") {
		detail += ", whose agent is silent"
		cure = c.agentCure()
	}
	e.find(importMissing, c.ID, detail, cure)
	e.addWaits(c, importReconciler)
}

// judgeNotReady adds why an import has no address.
func (e *explainer) judgeNotReady(c *Cluster, ready *metav1.Condition) string {
	derived := objects.DerivedServiceName(e.Name)
	switch mcsv1beta1.ServiceImportConditionReason(ready.Reason) {
	case mcsv1beta1.ServiceImportReasonIPFamilyNotSupported:
		e.find(familyNotSupported, c.ID, ready.Message,
			"make the Service dual-stack where it is exported (ipFamilyPolicy: PreferDualStack), or use it from a cluster that has its family")
		return "not usable: IP family"
	case v1alpha1.ServiceImportReasonDerivedServiceForeign:
		e.find(derivedForeign, c.ID, ready.Message,
			fmt.Sprintf("%s, or rename it; Seamark then creates its own", c.kubectl("-n %s delete service %s", e.Namespace, derived)))
		return "not usable: name taken"
	case v1alpha1.ServiceImportReasonDerivedServiceRefused:
		e.find(derivedRefused, c.ID, ready.Message,
			"remove what makes the API server refuse the Service "+derived+": a quota, an admission policy or an exhausted range; "+c.agentCure())
		return "not usable: no Service"
	case v1alpha1.ServiceImportReasonClusterSetIPRejected:
		e.find(clusterSetIPRejected, c.ID, ready.Message,
			"the broker's admin compares the ClusterSet's ranges with the records' clusterSetIPs; seamark doctor shows which ranges clash")
		return "not usable: clusterset IP rejected"
	case mcsv1beta1.ServiceImportReasonPending:
		if len(e.reportedIPs()) == 0 && e.merged.Mode == merge.ModeClusterSetIP {
			return "waiting for a clusterset IP" // explainAddress adds the finding
		}
	}
	e.find(importNotReady, c.ID, ready.Message, "if that lasts longer than some seconds: "+c.agentCure())
	e.addWaits(c, importReconciler)
	return "not ready"
}

// condition returns a condition of the import that is present only while it is True; nil otherwise.
func (c *Cluster) condition(t mcsv1beta1.ServiceImportConditionType) *metav1.Condition {
	condition := meta.FindStatusCondition(c.Import.Status.Conditions, string(t))
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}

// judgeRefused adds which endpoints were not imported because of their addresses, and reports
// whether there are any.
func (e *explainer) judgeRefused(c *Cluster) bool {
	refused := c.condition(v1alpha1.ServiceImportConditionAddressesRefused)
	if refused == nil {
		return false
	}
	e.find(addressesRefused, c.ID, refused.Message,
		"a cluster must publish addresses that other clusters can reach: correct the endpoints of the Service where it is exported")
	return true
}

// judgeHeld adds that a cluster keeps endpoints whose records the broker has lost. If the exporter
// itself holds the withdrawal, the finding is the exporter's.
func (e *explainer) judgeHeld(c *Cluster) {
	held := c.condition(v1alpha1.ServiceImportConditionWithdrawalHeld)
	if held == nil || held.Reason == string(v1alpha1.ServiceImportReasonHeldByExporter) {
		return
	}
	e.find(withdrawalHeld, c.ID, held.Message, "see why the agents of these clusters do not publish again (seamark doctor with their contexts); "+
		"if a cluster is gone for good: seamark cluster remove ID")
}

func (e *explainer) reportedIPs() []string {
	if e.report.Merged == nil {
		return nil
	}
	return e.report.Merged.IPs
}

// judgeEndpoints compares the endpoints that a cluster holds with those that the others publish.
// refused reports whether some were not imported because of their addresses.
func (e *explainer) judgeEndpoints(c *Cluster, refused bool) {
	have := bySource(c)
	const cure = "bring the cluster back, or, if it is gone for good: seamark cluster remove "
	kept := c.condition(v1alpha1.ServiceImportConditionStaleEndpointsKept)
	if stale, held := e.staleSources(c, have); kept != nil && (stale == "" || held != "") {
		// Without a silent cluster by the leases that were read, the agent has read others.
		e.find(staleKept, c.ID, kept.Message, cure+cmp.Or(held, "ID"))
	}
	for _, source := range e.merged.Clusters {
		switch {
		case source == c.ID:
			// Its own endpoints do not come through the broker; its lease says nothing about them.
		case slices.Contains(c.Unreachable, source):
			if have[source] < e.expected(c, source) {
				e.find(staleDropped, c.ID,
					fmt.Sprintf("cluster %s cannot be reached from %s, which leaves its endpoints out where another cluster serves", source, c.ID),
					"check the network between the two clusters: seamark status and seamark doctor; if the cluster is gone for good: "+
						"seamark cluster remove "+source)
			}
		case e.stale(source) && have[source] > 0:
			if kept == nil {
				e.find(staleKept, c.ID, fmt.Sprintf("cluster %s is silent, and %s still uses its endpoints: "+
					"its beacons answer there, or it fell silent just now", source, c.ID), cure+source)
			}
		case e.stale(source):
			e.find(staleDropped, c.ID,
				fmt.Sprintf("cluster %s is silent: %s leaves its endpoints out and uses those of other clusters", source, c.ID), cure+source)
		case refused: // they have a finding already
		default:
			if want := e.expected(c, source); have[source] != want {
				e.find(endpointsBehind, c.ID, fmt.Sprintf("%s has %d endpoints of %s, which publishes %d", c.ID, have[source], source, want),
					"if that lasts longer than some seconds: "+c.agentCure())
				e.addWaits(c, importReconciler)
			}
		}
	}
}

// staleSources returns the first other silent cluster that exports the service, and the first whose
// endpoints c holds; empty when there is none.
func (e *explainer) staleSources(c *Cluster, have map[string]int) (stale, held string) {
	for _, id := range e.merged.Clusters {
		if id == c.ID || !e.stale(id) {
			continue
		}
		stale = cmp.Or(stale, id)
		if have[id] > 0 {
			held = cmp.Or(held, id)
		}
	}
	return stale, held
}

// expected returns how many endpoints of a source cluster c should hold.
func (e *explainer) expected(c *Cluster, source string) int {
	n := 0
	for _, s := range e.slicesOf(source) {
		family := corev1.IPFamily(s.AddressType)
		if slices.Contains(e.merged.Spec.IPFamilies, family) && (len(c.Families) == 0 || slices.Contains(c.Families, family)) {
			n += len(s.Endpoints)
		}
	}
	return n
}

// judgeDataPlane returns what makes the clusterset IP work in a cluster, in words, and adds what is
// missing.
func (e *explainer) judgeDataPlane(c *Cluster) string {
	if e.merged.Mode != merge.ModeClusterSetIP && !e.merged.Empty() {
		return "none needed: " + string(e.merged.Mode)
	}
	switch plane := objects.DataPlaneOf(c.DataPlane); {
	case plane.DerivesService:
		return e.judgeDerived(c)
	case plane.RunsProxy:
		return e.judgeProxies(c)
	}
	return "not managed by Seamark"
}

func (e *explainer) judgeDerived(c *Cluster) string {
	name := objects.DerivedServiceName(e.Name)
	if c.Derived == nil {
		if len(c.Import.Spec.IPs) > 0 {
			e.find(derivedMissing, c.ID, fmt.Sprintf("the import has the address %s, but there is no Service %s with it",
				strings.Join(c.Import.Spec.IPs, ", "), name), "a running agent restores it at once: "+c.agentCure())
		}
		return "no derived Service"
	}
	if _, derived := objects.DerivedFrom(c.Derived); !derived {
		return "Service " + name + " is not managed by Seamark"
	}
	linked := 0
	for i := range c.Imported {
		if c.Imported[i].Labels["kubernetes.io/service-name"] == name {
			linked++
		}
	}
	noun := "slices"
	if linked == 1 {
		noun = "slice"
	}
	return fmt.Sprintf("Service %s, %d %s", name, linked, noun)
}

// judgeDNS returns what DNS answers, in words, and adds where that differs from the import.
func (e *explainer) judgeDNS(c *Cluster) string {
	if c.Import != nil && c.Corefile != "" && (c.DNSServer != nil || len(c.DNSAddresses) > 0) {
		if problem, fix := Forwarding(c.Corefile, c.zone(), c.DNSAddresses); problem != "" {
			e.find(dnsNotForwarded, c.ID, problem, fix)
		}
	}
	a := c.DNS
	switch {
	case c.Import != nil && c.DNSServer != nil && c.DNSServer.Ready == 0 && (a == nil || a.NotAsked != ""):
		e.find(dnsSilent, c.ID,
			fmt.Sprintf("none of %d pods of seamark-dns is ready: names of the clusterset are not answered", c.DNSServer.Want),
			c.kubectl("-n seamark-system describe pods -l app.kubernetes.io/component=dns"))
		return "not asked: no pod of seamark-dns is ready"
	case a == nil:
		return "not asked"
	case a.NotAsked != "":
		return "not asked: " + a.NotAsked
	case a.Problem != "":
		e.find(dnsSilent, c.ID, fmt.Sprintf("%s: %s", a.Server, a.Problem),
			"see whether seamark-dns is ready: "+c.kubectl("-n seamark-system get pods -l app.kubernetes.io/component=dns"))
		return a.Server + ": " + a.Problem
	case c.Import == nil:
		return a.Server + ": " + a.Code
	}
	want := e.expectedAnswer(c)
	if len(a.Addresses) == 0 && len(want) > 0 {
		e.find(dnsNoAnswer, c.ID,
			fmt.Sprintf("%s answers %s for %s, which should be %s", a.Server, a.Code, e.dnsName(c), strings.Join(want, ", ")),
			"seamark doctor"+c.contextFlag()+" checks the DNS server and the forwarding of "+c.zone())
		return a.Server + ": " + a.Code
	}
	if slices.ContainsFunc(a.Addresses, func(x string) bool { return !slices.Contains(want, x) }) {
		e.find(dnsDiffers, c.ID,
			fmt.Sprintf("%s answers %s, but the import has %s", a.Server, strings.Join(a.Addresses, ", "), orNone(strings.Join(want, ", "))),
			"answers may be cached for some seconds; if it lasts, check that the server is the one of this cluster")
	}
	if len(a.Addresses) == 0 {
		return a.Server + ": " + a.Code + ", no address"
	}
	return a.Server + ": " + strings.Join(a.Addresses, ", ")
}

// expectedAnswer returns the addresses that DNS may answer with.
func (e *explainer) expectedAnswer(c *Cluster) []string {
	if c.Import.Spec.Type == mcsv1beta1.ClusterSetIP && c.Import.Annotations[v1alpha1.AnnotationMode] != v1alpha1.ModeClassic {
		return c.Import.Spec.IPs
	}
	set := map[string]bool{}
	for i := range c.Imported {
		for _, end := range c.Imported[i].Endpoints {
			if (end.Conditions.Ready == nil || *end.Conditions.Ready) && len(end.Addresses) > 0 {
				set[end.Addresses[0]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
