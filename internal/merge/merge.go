// Package merge combines what the clusters of a clusterset export under one name into one service,
// and reports where they disagree. It is pure: the same records give the same result in every
// member and in any order, so that each member merges for itself. It has no client, no clock, no
// log and no randomness; a test guards its imports.
//
// The oldest export has precedence. A cluster disagrees about a property if its value differs from
// the oldest's, or from the service's. Only ports can give the service a value that the oldest does
// not have.
//
// Records are validated here although the CRD validates them too: another member wrote them, and
// one bad value must not lead to an object that the API server refuses, because no cluster could
// then import the service.
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

// Version is the version of the merge rules, which every aggregate carries. Raise it with any
// change by which the same records give another result: an agent never rewrites the aggregate of a
// newer version.
const Version = 2

// Mode is how clients reach a service.
type Mode string

const (
	// ModeClusterSetIP services have a clusterset IP in front of the pods of all clusters.
	ModeClusterSetIP Mode = "clusterset-ip"
	// ModeClassic services have no clusterset IP: clients get the ClusterIP of one of the exporting
	// clusters.
	ModeClassic Mode = v1alpha1.ModeClassic
	// ModeHeadless services have no IP of their own: clients get the addresses of the pods.
	ModeHeadless Mode = "headless"
)

// Result is a service as the clusterset has it. It shares no memory with the records it was made
// from.
type Result struct {
	// Spec is the spec of the ServiceImport without IPs, which are not decided here. Defaults are set,
	// and Ports is never nil, because the API server requires the field.
	//
	// Session affinity, internal traffic policy and traffic distribution may hold values that this
	// version does not know. A ServiceImport accepts them; a Service does not.
	Spec mcsv1beta1.ServiceImportSpec
	// Labels and Annotations are the exported ones of the oldest export, without those that the API
	// server would refuse or that an export may not set. Nil if there are none.
	Labels, Annotations map[string]string
	// Mode is how clients reach the service: what the oldest export requested when it was created.
	Mode Mode
	// Prefer is the oldest export's preference about the path of traffic. It is no property of the
	// service, so a difference is not a conflict.
	Prefer string
	// Clusters are those that take part in the service, by precedence.
	Clusters []string
	// LeftOut are the clusters that export the service and take no part in it, with the reason:
	// TypeConflict or IPFamilyConflict.
	LeftOut map[string]mcsv1beta1.ServiceExportConditionReason
	// Conflicts are all disagreements, in the order of the rules. Nil if all clusters agree.
	Conflicts []Conflict

	// offers are the valid ports of each of Clusters. Clusters that agree share one slice.
	offers [][]port
	// index maps a cluster to its place in Clusters. It is nil while searching the slice is cheaper.
	index map[string]int
}

// Empty reports whether no cluster exports the service.
func (r Result) Empty() bool { return len(r.Clusters) == 0 }

// Merge combines what the clusters export under one name. The caller passes only records of one
// service. Of several records of one cluster the one with precedence counts. Without records the
// result is empty.
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

	// Types and families are merged first, because a cluster that is left out does not count for the
	// rest. The list of conflicts is in the order of the rules.
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

// member is a record with values that are derived from it once and used by several rules.
type member struct {
	*v1alpha1.ExportRecordSpec
	// exported is the time of the export in seconds, the precision of the API.
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

// manyClusters is the number above which a map finds a cluster faster than a search of the slice.
const manyClusters = 16

// byPrecedence returns the records with the oldest export first, and only one of each cluster.
func byPrecedence(records []*v1alpha1.ExportRecord) []*member {
	members := make([]member, len(records))
	sorted := make([]*member, len(records))
	for i := range records {
		m := &members[i]
		m.ExportRecordSpec = &records[i].Spec
		m.exported = m.ExportedAt.Unix()
		if m.ExportedAt.IsZero() {
			m.exported = math.MaxInt64 // an export without a time comes last
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
	// The names of records on the broker rule out two records of one cluster. If there are two with
	// the same second, every member must still choose the same one.
	return bytes.Compare(canonical(a), canonical(b))
}

// canonical returns a record as text that does not depend on the order of its ports.
func canonical(m *member) []byte {
	spec := *m.ExportRecordSpec
	spec.Ports = slices.SortedFunc(slices.Values(spec.Ports), func(a, b v1alpha1.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port),
			cmp.Compare(deref(a.AppProtocol), deref(b.AppProtocol)))
	})
	text, err := json.Marshal(spec)
	if err != nil {
		return nil // strings, numbers and maps of strings always encode
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

// setMembers sets the clusters that take part, and derives from each record what the rules compare.
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

// find returns the index of a cluster in Clusters, or -1.
func (r Result) find(cluster string) int {
	if r.index == nil {
		return slices.Index(r.Clusters, cluster)
	}
	if i, ok := r.index[cluster]; ok {
		return i
	}
	return -1
}

func (r *Result) leaveOut(m *member, reason mcsv1beta1.ServiceExportConditionReason) {
	if r.LeftOut == nil {
		r.LeftOut = map[string]mcsv1beta1.ServiceExportConditionReason{}
	}
	r.LeftOut[m.cluster()] = reason
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
