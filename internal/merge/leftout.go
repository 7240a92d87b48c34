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

// leaveOutOtherFamilies sets the families of the service to those of the oldest export that has
// any, and returns the members. A newer cluster contributes the families it shares, so that it
// never takes one from a running service; one that shares none is left out. A record without a
// known family takes part.
func (r *Result) leaveOutOtherFamilies(exports []*member) ([]*member, Conflict) {
	var oldest *member
	var won families
	for _, m := range exports {
		if won = familiesOf(m); won != 0 {
			oldest = m
			break
		}
	}
	if oldest == nil {
		return exports, Conflict{}
	}
	r.Spec.IPFamilies = won.in(oldest)
	c := Conflict{Reason: mcsv1beta1.ServiceExportReasonIPFamilyConflict, Winner: oldest.cluster(), Won: won.String()}
	c.lead = "IP families " + c.Won + " from " + shortID(c.Winner) + " win"
	kept := exports[:0]
	for _, m := range exports {
		has := familiesOf(m)
		if has != 0 && has != won {
			c.Disagree = append(c.Disagree, Disagreement{Cluster: m.cluster(), Value: has.String()})
		}
		if has != 0 && has&won == 0 {
			r.leaveOut(m, c.Reason)
			c.note = "a cluster with none of them is left out of the service until it has one"
			continue
		}
		kept = append(kept, m)
	}
	return kept, c
}
