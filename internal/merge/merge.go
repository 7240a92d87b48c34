// Package merge combines what the clusters of a clusterset export under one name into one service, and tells where they
// disagree. It is pure: the same records give the same result in every member, whatever the order they come in, so every
// member may merge for itself. It has no client, no clock, no log and no randomness (a test guards its imports).
//
// The oldest export has precedence. A cluster disagrees about a property when what it has differs from what the oldest
// has, or from what the service got; only ports and IP families can give the service something the oldest does not have.
//
// What a record says is checked again here although the CRD refuses bad records: another member wrote it, and one bad
// value must not make an object that the API server refuses, for that would take the service away from everybody.
package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Version is the version of the merge rules, written on every aggregate. Raise it with any change that makes the same
// records give another result: an agent never rewrites what a newer version wrote.
const Version = 1

// Mode says how clients reach a service.
type Mode string

const (
	// ModeClusterSetIP services have a virtual IP in front of the pods of all clusters.
	ModeClusterSetIP Mode = "clusterset-ip"
	// ModeClassic services have no clusterset IP: clients get the ClusterIP of one of the exporting clusters.
	ModeClassic Mode = v1alpha1.ModeClassic
	// ModeHeadless services are the addresses of their pods.
	ModeHeadless Mode = "headless"
)

// Result is a service as the clusterset has it. It shares no memory with the records it was made from.
type Result struct {
	// Spec is the spec of the ServiceImport but for its IPs, which are not decided here. Defaults are written out, and
	// Ports is never nil, because the API server wants the field even when there is none.
	//
	// Session affinity, internal traffic policy and traffic distribution may hold values that this version does not know.
	// A ServiceImport takes them; whoever writes a Service must look at them first.
	Spec mcsv1beta1.ServiceImportSpec
	// Labels and Annotations are the exported ones of the oldest export, without those the API server would refuse and
	// those that are not an export's to set. Nil when there are none.
	Labels, Annotations map[string]string
	// Mode says how clients reach the service: what the oldest export asked for when it was made.
	Mode Mode
	// Prefer is what the oldest export asks of the data plane. It is a wish about the path, not a property of the service,
	// so a difference is no conflict.
	Prefer string
	// Clusters take part in the service, the one with precedence first.
	Clusters []string
	// LeftOut are the clusters that export the service and take no part in it, and why: TypeConflict or IPFamilyConflict.
	LeftOut map[string]mcsv1beta1.ServiceExportConditionReason
	// Conflicts are all disagreements, in the order of the rules. Nil when everybody agrees.
	Conflicts []Conflict

	// offers are the valid ports of each of Clusters. Clusters that agree share one slice.
	offers [][]port
	// index finds a cluster in Clusters; nil while walking them is cheaper.
	index map[string]int
}

// Empty tells that nobody exports the service: there is nothing to import.
func (r Result) Empty() bool { return len(r.Clusters) == 0 }

// Merge combines what the clusters export under one name. All records must be of the same service; that is for the caller
// to see to. Of several records of one cluster the one with precedence counts. Without records the result is empty.
func Merge(records []*v1alpha1.ExportRecord) Result {
	exports := byPrecedence(records)
	if len(exports) == 0 {
		return Result{}
	}
	var r Result
	sameType, types := r.leaveOutOtherTypes(exports)
	members, families := r.leaveOutOtherFamilies(sameType)

	r.setMembers(members)
	r.Prefer = members[0].Prefer
	r.Mode = modeOf(members[0])
	ports := r.mergePorts(members)

	// Types and families come first, because who is left out has no say in the rest; the list of conflicts keeps the
	// order of the rules nevertheless.
	r.add(types)
	r.add(ports)
	for i := range rules {
		if rules[i].reason == v1alpha1.ServiceExportReasonClusterSetIPConflict {
			r.add(families)
		}
		r.add(rules[i].merge(&r, members))
	}
	return r
}

// member is a record with what is derived from it once and used by several rules.
type member struct {
	*v1alpha1.ExportRecordSpec
	// exported is the time of the export in seconds, as the API carries no more.
	exported            int64
	ports               []port
	labels, annotations map[string]string
}

func (m *member) cluster() string { return string(m.ClusterID) }

func (m *member) headless() bool { return m.Type == mcsv1beta1.Headless }

func modeOf(oldest *member) Mode {
	switch {
	case oldest.headless():
		return ModeHeadless
	case oldest.UseClusterSetIP:
		return ModeClusterSetIP
	default:
		return ModeClassic
	}
}

// manyClusters is the number from which a map finds a cluster faster than a walk.
const manyClusters = 16

// byPrecedence sorts the records, oldest export first, and keeps one of each cluster.
func byPrecedence(records []*v1alpha1.ExportRecord) []*member {
	slab := make([]member, len(records))
	sorted := make([]*member, len(records))
	for i := range records {
		m := &slab[i]
		m.ExportRecordSpec = &records[i].Spec
		m.exported = m.ExportedAt.Unix()
		if m.ExportedAt.IsZero() {
			m.exported = math.MaxInt64 // an export without a time must not win over all that have one
		}
		sorted[i] = m
	}
	slices.SortFunc(sorted, precedence)
	return oneOfEach(sorted)
}

func precedence(a, b *member) int {
	if c := cmp.Compare(a.exported, b.exported); c != 0 {
		return c
	}
	if c := cmp.Compare(a.ClusterID, b.ClusterID); c != 0 {
		return c
	}
	// Two records of one cluster, of the same second: the names of the records on the broker make that impossible. Any
	// choice will do as long as every member makes the same one.
	return bytes.Compare(canonical(a), canonical(b))
}

// canonical is a record as text, whatever the order of its ports.
func canonical(m *member) []byte {
	spec := *m.ExportRecordSpec
	spec.Ports = slices.SortedFunc(slices.Values(spec.Ports), func(a, b v1alpha1.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port),
			cmp.Compare(deref(a.AppProtocol), deref(b.AppProtocol)))
	})
	text, err := json.Marshal(spec)
	if err != nil {
		return nil // strings, numbers and maps of strings: cannot fail
	}
	return text
}

func oneOfEach(sorted []*member) []*member {
	if len(sorted) <= manyClusters {
		kept := sorted[:0]
		for _, m := range sorted {
			if !slices.ContainsFunc(kept, func(k *member) bool { return k.ClusterID == m.ClusterID }) {
				kept = append(kept, m)
			}
		}
		return kept
	}
	seen := make(map[v1alpha1.ClusterID]struct{}, len(sorted))
	return slices.DeleteFunc(sorted, func(m *member) bool {
		_, dup := seen[m.ClusterID]
		seen[m.ClusterID] = struct{}{}
		return dup
	})
}

// setMembers records who takes part, and reads from each record what the rules compare.
func (r *Result) setMembers(members []*member) {
	r.Clusters = make([]string, len(members))
	r.offers = make([][]port, len(members))
	if len(members) > manyClusters {
		r.index = make(map[string]int, len(members))
	}
	for i, m := range members {
		m.readPorts(members[0], members[max(i-1, 0)])
		m.readMetadata(members[0])
		r.Clusters[i] = m.cluster()
		r.offers[i] = m.ports
		if r.index != nil {
			r.index[m.cluster()] = i
		}
	}
}

// find returns the place of a cluster among those that take part, or -1.
func (r Result) find(cluster string) int {
	if r.index == nil {
		return slices.Index(r.Clusters, cluster)
	}
	if i, ok := r.index[cluster]; ok {
		return i
	}
	return -1
}

func (r *Result) leaveOut(m *member, why mcsv1beta1.ServiceExportConditionReason) {
	if r.LeftOut == nil {
		r.LeftOut = map[string]mcsv1beta1.ServiceExportConditionReason{}
	}
	r.LeftOut[m.cluster()] = why
}

func (r *Result) add(c Conflict) {
	if len(c.Disagree) > 0 {
		r.Conflicts = append(r.Conflicts, c)
	}
}

func deref[T ~string](p *T) T {
	if p == nil {
		return ""
	}
	return *p
}
