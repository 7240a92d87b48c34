package explain

import (
	"fmt"
	"strings"
)

// Severity is how bad a finding is.
type Severity string

const (
	// Fail means that the service cannot be used in some cluster.
	Fail Severity = "fail"
	// Warn means that it works, but not as an exporter asked for, or not for long.
	Warn Severity = "warn"
	// Note means that nothing is wrong, but something could not be read.
	Note Severity = "note"
)

func (s Severity) rank() int { return map[Severity]int{Fail: 0, Warn: 1, Note: 2}[s] }

// Hop is one step on the way from an exporting cluster to a client in another.
type Hop string

// The hops, in the order in which a service passes them.
const (
	HopExport    Hop = "export"
	HopBroker    Hop = "broker"
	HopMerge     Hop = "merge"
	HopAddress   Hop = "address"
	HopImport    Hop = "import"
	HopDataPlane Hop = "data plane"
	HopDNS       Hop = "dns"
)

func (h Hop) rank() int {
	return map[Hop]int{HopExport: 0, HopBroker: 1, HopMerge: 2, HopAddress: 3, HopImport: 4, HopDataPlane: 5, HopDNS: 6}[h]
}

// Problem is a kind of finding. Each has its section in docs/troubleshooting.md.
type Problem struct {
	Code     string
	Title    string
	Severity Severity
	Hop      Hop
}

// Finding is one thing that is wrong, where, and what to do about it.
type Finding struct {
	Code     string   `json:"code"`
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Hop      Hop      `json:"hop"`
	// Cluster is where it is wrong; empty when that is the service as a whole.
	Cluster string `json:"cluster,omitempty"`
	// Detail is what was found, Cure is what to do.
	Detail string `json:"detail"`
	// Waiting is what the cluster's agent waits for, where that is why something is missing.
	Waiting []Wait `json:"waiting,omitempty"`
	Cure    string `json:"cure"`
}

// Clusters returns the clusters where it is wrong; none when that is the service as a whole. A
// conflict names several.
func (f *Finding) Clusters() []string {
	if f.Cluster == "" {
		return nil
	}
	return strings.Split(f.Cluster, separator)
}

// separator is between the clusters of a finding. Ids of clusters have neither of its characters.
const separator = ", "

// Problems are all kinds of findings.
var Problems = []Problem{
	notExported, noService, externalName, namespaceNotAllowed, limitExceeded, withdrawalHeld, notMember, agentSilent, agentNotRunning,
	refusedByBroker, idTaken, noReadyEndpoints,
	clusterUnreachable, brokerUnreachable, notPublished, waitingForBroker,
	typeConflict, portConflict, familyConflict, otherConflict,
	noClusterSetIPLeft, noClusterSetIP, clusterSetIPRejected,
	namespaceMissing, namespaceReserved, importMissing, importForeign, importNotReady, familyNotSupported,
	staleKept, staleDropped, addressesRefused, endpointsBehind,
	derivedForeign, derivedMissing, derivedRefused, proxyNotReady, proxyDamaged, proxyCutOff, proxyBehind, proxyRefused,
	dnsNoAnswer, dnsDiffers, dnsSilent, dnsNotForwarded,
}

var (
	notExported         = Problem{"not-exported", "no cluster exports the service", Fail, HopExport}
	noService           = Problem{"no-service", "the export has no Service", Fail, HopExport}
	externalName        = Problem{"external-name", "a Service of type ExternalName cannot be exported", Fail, HopExport}
	namespaceNotAllowed = Problem{"namespace-not-allowed", "the cluster may not export from this namespace", Fail, HopExport}
	limitExceeded       = Problem{"limit-exceeded", "the cluster exports more than it may", Fail, HopExport}
	withdrawalHeld      = Problem{"withdrawal-held", "most services of a cluster are gone, and nothing shows that this is meant", Warn, HopExport}
	notMember           = Problem{"not-a-member", "the cluster is not a member of the clusterset", Fail, HopExport}
	agentSilent         = Problem{"agent-silent", "the cluster's heartbeat has stopped", Fail, HopBroker}
	agentNotRunning     = Problem{"agent-not-running", "no agent has reconciled the export", Fail, HopExport}
	refusedByBroker     = Problem{"broker-refused", "the broker refused the export", Fail, HopBroker}
	idTaken             = Problem{"id-taken", "another cluster uses this cluster's id", Fail, HopBroker}
	noReadyEndpoints    = Problem{"no-ready-endpoints", "no endpoint is ready", Fail, HopExport}

	clusterUnreachable = Problem{"cluster-unreachable", "a cluster could not be read", Note, HopExport}
	brokerUnreachable  = Problem{"broker-unreachable", "the broker cannot be read", Fail, HopBroker}
	notPublished       = Problem{"not-published", "the broker does not have the export as it is now", Fail, HopBroker}
	waitingForBroker   = Problem{"waiting-for-broker", "the agent cannot reach the broker", Fail, HopBroker}

	typeConflict   = Problem{"type-conflict", "some exports are headless and some are not", Fail, HopMerge}
	portConflict   = Problem{"port-conflict", "the exports have different ports", Warn, HopMerge}
	familyConflict = Problem{"ip-family-conflict", "the exports have different IP families", Warn, HopMerge}
	otherConflict  = Problem{"property-conflict", "the exports have different properties", Warn, HopMerge}

	noClusterSetIPLeft   = Problem{"no-clusterset-ip-left", "no clusterset IP is left", Fail, HopAddress}
	noClusterSetIP       = Problem{"no-clusterset-ip", "the service has no clusterset IP", Fail, HopAddress}
	clusterSetIPRejected = Problem{"clusterset-ip-not-used", "the importing cluster rejects the clusterset IP", Fail, HopAddress}

	namespaceMissing   = Problem{"namespace-missing", "the importing cluster lacks the namespace", Fail, HopImport}
	namespaceReserved  = Problem{"namespace-reserved", "services of a system namespace are not imported", Warn, HopImport}
	importMissing      = Problem{"import-missing", "the service is not imported", Fail, HopImport}
	importForeign      = Problem{"import-foreign", "the ServiceImport is not managed by Seamark", Warn, HopImport}
	importNotReady     = Problem{"import-not-ready", "the import is not ready", Fail, HopImport}
	familyNotSupported = Problem{"ip-family-not-supported", "the cluster has none of the service's IP families", Fail, HopImport}
	staleKept          = Problem{"stale-endpoints-kept", "endpoints of a cluster that is silent or unreachable are kept", Warn, HopImport}
	staleDropped       = Problem{"stale-endpoints-dropped", "endpoints of a cluster that is silent or unreachable are left out", Warn, HopImport}
	addressesRefused   = Problem{"addresses-refused", "endpoints with unusable addresses are not imported", Warn, HopImport}
	endpointsBehind    = Problem{"endpoints-behind", "the import is behind its exporters", Warn, HopImport}

	derivedForeign = Problem{"derived-service-foreign", "another Service has the name of the derived Service", Fail, HopDataPlane}
	derivedMissing = Problem{"derived-service-missing", "there is no derived Service", Fail, HopDataPlane}
	derivedRefused = Problem{"derived-service-refused", "the API server rejects the derived Service", Fail, HopDataPlane}
	proxyNotReady  = Problem{"proxy-not-ready", "seamark-proxy does not run on every node", Fail, HopDataPlane}
	proxyDamaged   = Problem{"proxy-damaged", "another program changed the rules of a node", Fail, HopDataPlane}
	proxyCutOff    = Problem{"proxy-cut-off", "a node's proxy cannot reach its API server", Warn, HopDataPlane}
	proxyBehind    = Problem{"proxy-behind", "a node has not programmed the clusterset IP", Fail, HopDataPlane}
	proxyRefused   = Problem{"proxy-refused", "part of the service cannot be programmed", Warn, HopDataPlane}

	dnsNoAnswer     = Problem{"dns-no-answer", "DNS does not know the name", Fail, HopDNS}
	dnsDiffers      = Problem{"dns-differs", "DNS answers with other addresses", Warn, HopDNS}
	dnsNotForwarded = Problem{"dns-not-forwarded", "the cluster's DNS does not forward to seamark-dns", Fail, HopDNS}
	dnsSilent       = Problem{"dns-silent", "the DNS server does not answer", Fail, HopDNS}
)

// find adds a finding.
func (e *explainer) find(p Problem, cluster, detail, cure string) {
	e.findAs(p.Severity, p, cluster, detail, cure)
}

// findAs adds a finding with another severity than its problem has.
func (e *explainer) findAs(severity Severity, p Problem, cluster, detail, cure string) {
	e.report.Findings = append(e.report.Findings, Finding{
		Code: p.Code, Title: p.Title, Severity: severity, Hop: p.Hop, Cluster: cluster, Detail: detail, Cure: cure,
	})
}

// kubectl returns the command line of kubectl for a cluster; c may be nil.
func (c *Cluster) kubectl(format string, args ...any) string {
	return "kubectl" + c.contextFlag() + " " + fmt.Sprintf(format, args...)
}

func (c *Cluster) contextFlag() string {
	if c == nil || c.Context == "" {
		return ""
	}
	return " --context " + c.Context
}

// agentCure returns how to find out what is wrong with a cluster's agent; c may be nil.
func (c *Cluster) agentCure() string {
	switch {
	case c == nil:
		return "name that cluster's context too (--contexts), and read its agent's log: kubectl -n seamark-system logs deployment/seamark-agent"
	case c.Agent == nil:
		return "no Deployment seamark-agent runs in that cluster: install it (seamark join), or start seamark-agent where it runs"
	case c.Agent.Ready < c.Agent.Want:
		return fmt.Sprintf("%d of %d agent pods are ready: %s", c.Agent.Ready, c.Agent.Want,
			c.kubectl("-n seamark-system describe pods -l app.kubernetes.io/component=agent"))
	}
	return "read the agent's log: " + c.kubectl("-n seamark-system logs deployment/seamark-agent")
}
