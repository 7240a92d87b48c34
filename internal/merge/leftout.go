package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// leaveOutOtherTypes sets the type of the service to the oldest's, and returns the exports of that
// type. Headless services and those with an IP are reached in different ways, so the others are
// left out. No state is kept: when the winner unexports, the next merge takes the type of the next
// oldest.
func (r *Result) leaveOutOtherTypes(exports []*member) ([]*member, Conflict) {
	oldest := exports[0]
	r.Spec.Type = typeOf(oldest)
	c := Conflict{Reason: mcsv1beta1.ServiceExportReasonTypeConflict, Winner: oldest.cluster(), Won: string(r.Spec.Type)}

	kept := exports[:0]
	for _, m := range exports {
		if m.headless() == oldest.headless() {
			kept = append(kept, m)
			continue
		}
		r.leaveOut(m, c.Reason)
		c.Disagree = append(c.Disagree, Disagreement{Cluster: m.cluster(), Value: string(typeOf(m))})
	}
	if c.Disagree == nil {
		return kept, Conflict{}
	}
	c.lead = "type " + c.Won + " from " + shortID(c.Winner) + " wins"
	c.note = "a cluster of the other type is left out of the service until it agrees"
	return kept, c
}

// typeOf returns the type of an export as a ServiceImport may have it.
func typeOf(m *member) mcsv1beta1.ServiceImportType {
	if m.headless() {
		return mcsv1beta1.Headless
	}
	return mcsv1beta1.ClusterSetIP
}

// familyNames are the known families. This version cannot import others.
var familyNames = [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// families is a set of IP families, with a bit for each of familyNames.
type families uint8

func familiesOf(m *member) families {
	var set families
	for _, f := range m.IPFamilies {
		if i := slices.Index(familyNames[:], f); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// in returns the families of the set in the order of the record.
func (f families) in(m *member) []corev1.IPFamily {
	list := make([]corev1.IPFamily, 0, len(familyNames))
	for _, name := range m.IPFamilies {
		i := slices.Index(familyNames[:], name)
		if i >= 0 && f&(1<<i) != 0 && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func (f families) String() string {
	return [...]string{"none", "IPv4", "IPv6", "IPv4, IPv6"}[f]
}

// leaveOutOtherFamilies narrows the families of the service, by precedence, to those that all
// members have, and returns the members. A cluster that has none of the families left is left out,
// so that older ones keep theirs. A record without a known family takes part and does not narrow
// them.
func (r *Result) leaveOutOtherFamilies(exports []*member) ([]*member, Conflict) {
	oldest, common := exports[0], families(0)
	sets := make([]families, len(exports))
	for i, m := range exports {
		sets[i] = familiesOf(m)
		switch {
		case sets[i] == 0:
		case common == 0:
			oldest, common = m, sets[i]
		case common&sets[i] != 0:
			common &= sets[i]
		default:
			r.leaveOut(m, mcsv1beta1.ServiceExportReasonIPFamilyConflict)
		}
	}
	if common != 0 {
		r.Spec.IPFamilies = common.in(oldest)
	}
	return r.familyConflict(exports, sets, oldest, common)
}

func (r *Result) familyConflict(exports []*member, sets []families, oldest *member, common families) ([]*member, Conflict) {
	c := Conflict{Reason: mcsv1beta1.ServiceExportReasonIPFamilyConflict, Winner: oldest.cluster(), Won: common.String()}
	narrowed := common != familiesOf(oldest)
	kept, leftOut := exports[:0], false
	for i, m := range exports {
		if sets[i] != 0 && (narrowed || sets[i] != common) {
			c.Disagree = append(c.Disagree, Disagreement{Cluster: m.cluster(), Value: sets[i].String()})
		}
		if sets[i] != 0 && sets[i]&common == 0 {
			leftOut = true
			continue
		}
		kept = append(kept, m)
	}
	if c.Disagree == nil {
		return kept, Conflict{}
	}
	c.lead = "IP families " + c.Won + " from " + shortID(c.Winner) + " win"
	if narrowed {
		c.lead = "IP families in common are " + c.Won
	}
	if leftOut {
		c.note = "a cluster with none of them is left out of the service until it has one"
	}
	return kept, c
}
