package explain

import (
	"slices"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// State sums up a report.
type State string

const (
	// OK is a service without findings, or with notes only.
	OK State = "ok"
	// Degraded is a service that works, but not as an exporter asked for.
	Degraded State = "degraded"
	// Broken is a service that does not work in some cluster.
	Broken State = "broken"
)

// Report describes a service. All lists are in a fixed order.
type Report struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// DNSName is its name in the zone of the first cluster; Importers have each cluster's own.
	DNSName string `json:"dnsName"`
	State   State  `json:"state"`
	// Findings are what is wrong: by severity, then by hop.
	Findings  []Finding   `json:"findings"`
	Exporters []Exporter  `json:"exporters"`
	Merged    *Merged     `json:"merged,omitempty"`
	Conflicts []Conflict  `json:"conflicts"`
	Endpoints []Endpoints `json:"endpoints"`
	Importers []Importer  `json:"importers"`
	Timeline  []Step      `json:"timeline"`
}

// Exporter is one cluster's contribution: as the cluster has it, or as the broker has it where the
// cluster was not read.
type Exporter struct {
	Cluster    string     `json:"cluster"`
	ExportedAt *time.Time `json:"exportedAt,omitempty"`
	// Service is the type and ports of its Service, in words.
	Service string `json:"service"`
	Ready   int    `json:"readyEndpoints"`
	Total   int    `json:"endpoints"`
	// Published reports whether the broker has its record.
	Published bool `json:"published"`
	// Heartbeat is the state of the member's lease: alive, silent, never or unknown.
	Heartbeat string `json:"heartbeat"`
	// State sums it up in words.
	State string `json:"state"`
}

// Merged is the service as the clusterset has it.
type Merged struct {
	Type  string     `json:"type"`
	Mode  merge.Mode `json:"mode"`
	Ports []string   `json:"ports"`
	// Families are the IP families. Policies are the traffic policies, in words.
	Families []string `json:"ipFamilies"`
	Policies string   `json:"policies"`
	// Precedence are the clusters that take part, in the order in which they win conflicts.
	Precedence []string `json:"precedence"`
	// LeftOut are the clusters that export it and take no part, with the reason.
	LeftOut     map[string]string `json:"leftOut,omitempty"`
	IPs         []string          `json:"ips,omitempty"`
	AllocatedBy string            `json:"allocatedBy,omitempty"`
	WrittenBy   string            `json:"writtenBy,omitempty"`
}

// Conflict is one property in which exports differ, and how to end that.
type Conflict struct {
	Reason   string   `json:"reason"`
	Winner   string   `json:"winner"`
	Won      string   `json:"won"`
	Disagree []string `json:"disagree"`
	Message  string   `json:"message"`
	Cure     string   `json:"cure"`
}

// Endpoints is how many endpoints a cluster has in a zone.
type Endpoints struct {
	Cluster     string `json:"cluster"`
	Zone        string `json:"zone,omitempty"`
	Ready       int    `json:"ready"`
	NotReady    int    `json:"notReady"`
	Terminating int    `json:"terminating"`
}

// Importer is the service as one importing cluster has it.
type Importer struct {
	Cluster string `json:"cluster"`
	// DNSName is the name by which it is reached there.
	DNSName   string             `json:"dnsName"`
	DataPlane v1alpha1.DataPlane `json:"dataPlane,omitempty"`
	IPs       []string           `json:"ips,omitempty"`
	// Endpoints is how many its imported slices hold, by source cluster.
	Endpoints map[string]int `json:"endpoints,omitempty"`
	// Programmed is what its data plane holds, in words.
	Programmed string `json:"programmed"`
	// DNS is what the name is answered with right now, or why no server was asked.
	DNS   string `json:"dns"`
	State string `json:"state"`
}

// Explain describes a service and finds what is wrong with it.
func Explain(in Input) Report {
	e := &explainer{Input: in, lives: lives(&in)}
	for i := range in.Broker.Records {
		if r := &in.Broker.Records[i]; objects.CheckRecord(r) == nil {
			e.records = append(e.records, r)
		}
	}
	e.records = objects.AdmittedRecords(e.records, in.Broker.member)
	e.merged, _ = merge.WithDemoted(e.records, Demoted(in.Broker.Members, e.lives), func(after merge.Result) bool {
		return slices.ContainsFunc(after.Clusters, e.serves)
	})
	e.report = Report{
		Namespace: in.Namespace, Name: in.Name, DNSName: e.dnsName(e.firstRead()), State: OK,
		Findings: []Finding{}, Exporters: []Exporter{}, Conflicts: []Conflict{}, Endpoints: []Endpoints{}, Importers: []Importer{},
		Timeline: []Step{},
	}
	e.explainBroker()
	e.explainExporters()
	e.explainMerge()
	e.explainEndpoints()
	e.explainImporters()
	e.report.Timeline = timeline(&e.Input)
	e.conclude()
	return e.report
}

// explainer turns an Input into a Report.
type explainer struct {
	Input
	lives map[string]Life
	// records are the valid ones of the broker, and merged is what they make.
	records []*v1alpha1.ExportRecord
	merged  merge.Result
	report  Report
}

// dnsName returns the name of the service in a cluster's zone; c may be nil.
func (e *explainer) dnsName(c *Cluster) string {
	return e.Name + "." + e.Namespace + ".svc." + c.zone()
}

// firstRead returns the first cluster that could be read, nil when there is none.
func (e *explainer) firstRead() *Cluster {
	for i := range e.Clusters {
		if e.Clusters[i].Problem == "" {
			return &e.Clusters[i]
		}
	}
	return nil
}

// conclude sorts the findings and sets the state of the report.
func (e *explainer) conclude() {
	slices.SortStableFunc(e.report.Findings, func(a, b Finding) int {
		if a.Severity != b.Severity {
			return a.Severity.rank() - b.Severity.rank()
		}
		return a.Hop.rank() - b.Hop.rank()
	})
	for _, f := range e.report.Findings {
		switch {
		case f.Severity == Fail:
			e.report.State = Broken
		case f.Severity == Warn && e.report.State == OK:
			e.report.State = Degraded
		}
	}
}
