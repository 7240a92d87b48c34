package merge

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// rule decides one property by precedence alone: the service gets the oldest's value.
type rule struct {
	reason mcsv1beta1.ServiceExportConditionReason
	// lead and verb are the words of a message before and after the value that won.
	lead, verb string
	// apply sets the service's value to the oldest's.
	apply func(r *Result, oldest *member)
	// equal reports whether a member agrees with the oldest.
	equal func(oldest, m *member) bool
	// describe returns a member's value as text.
	describe func(m *member) string
	// won returns the service's value as text, if it is not describe(oldest).
	won func(oldest *member) string
	// note returns the end of the message, given the first member that disagrees. It may be nil.
	note func(oldest, first *member) string
}

// rules are applied in this order, which is also the order of conflicts in a message. Types, ports
// and families are merged on their own, because they do more than follow the oldest.
//
// The MCS API ignores session affinity of a headless service, and nothing reads its policies. They
// are merged and reported nevertheless: the exports disagree, and it matters once the service has
// an IP.
var rules = []rule{
	{
		reason:   mcsv1beta1.ServiceExportReasonSessionAffinityConflict,
		lead:     "session affinity",
		verb:     "wins",
		apply:    func(r *Result, oldest *member) { r.Spec.SessionAffinity = affinity(oldest) },
		equal:    func(oldest, m *member) bool { return affinity(m) == affinity(oldest) },
		describe: func(m *member) string { return short(string(affinity(m))) },
	},
	{
		reason: mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict,
		lead:   "session affinity timeout",
		verb:   "wins",
		apply: func(r *Result, oldest *member) {
			// The API server refuses a config without ClientIP affinity.
			if affinity(oldest) == corev1.ServiceAffinityClientIP {
				seconds := timeout(oldest)
				r.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
				}
			}
		},
		equal: func(oldest, m *member) bool {
			// A cluster that disagrees about the affinity itself is reported for that, not for its timeout.
			return affinity(oldest) != corev1.ServiceAffinityClientIP || affinity(m) != corev1.ServiceAffinityClientIP ||
				timeout(m) == timeout(oldest)
		},
		describe: func(m *member) string { return strconv.Itoa(int(timeout(m))) + "s" },
	},
	{
		reason: mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict,
		lead:   "internal traffic policy",
		verb:   "wins",
		apply: func(r *Result, oldest *member) {
			policy := internalPolicy(oldest)
			r.Spec.InternalTrafficPolicy = &policy
		},
		equal:    func(oldest, m *member) bool { return internalPolicy(m) == internalPolicy(oldest) },
		describe: func(m *member) string { return short(string(internalPolicy(m))) },
	},
	{
		reason: mcsv1beta1.ServiceExportReasonTrafficDistributionConflict,
		lead:   "traffic distribution",
		verb:   "wins",
		apply: func(r *Result, oldest *member) {
			if d := deref(oldest.TrafficDistribution); d != "" {
				r.Spec.TrafficDistribution = &d
			}
		},
		equal: func(oldest, m *member) bool {
			return deref(m.TrafficDistribution) == deref(oldest.TrafficDistribution)
		},
		describe: func(m *member) string { return orNone(short(deref(m.TrafficDistribution))) },
	},
	{
		reason:   mcsv1beta1.ServiceExportReasonLabelsConflict,
		lead:     "exported labels",
		verb:     "win",
		apply:    func(r *Result, oldest *member) { r.Labels = cloneOrNil(oldest.labels) },
		equal:    func(oldest, m *member) bool { return maps.Equal(m.labels, oldest.labels) },
		describe: func(m *member) string { return describeMap(m.labels) },
	},
	{
		reason:   mcsv1beta1.ServiceExportReasonAnnotationsConflict,
		lead:     "exported annotations",
		verb:     "win",
		apply:    func(r *Result, oldest *member) { r.Annotations = cloneOrNil(oldest.annotations) },
		equal:    func(oldest, m *member) bool { return maps.Equal(m.annotations, oldest.annotations) },
		describe: func(m *member) string { return describeMap(m.annotations) },
	},
	{
		// The oldest's request at its creation is compared with each cluster's request now. By the
		// specification of clusterset IPs a later change of the annotation changes only this condition,
		// so the oldest can disagree with itself.
		reason: v1alpha1.ServiceExportReasonClusterSetIPConflict,
		lead:   "clusterset IP",
		verb:   "wins",
		apply:  func(*Result, *member) {}, // modeOf sets the mode
		equal: func(oldest, m *member) bool {
			return oldest.headless() || m.RequestedClusterSetIP == oldest.UseClusterSetIP
		},
		describe: func(m *member) string { return onOff(m.RequestedClusterSetIP) },
		won:      func(oldest *member) string { return onOff(oldest.UseClusterSetIP) },
		note: func(oldest, first *member) string {
			if first != oldest {
				return ""
			}
			return "to change it, delete the ServiceExports of this service in all clusters and create them again"
		},
	},
}

// merge applies the rule and returns the conflict. It has no Disagree if all members agree.
func (ru *rule) merge(r *Result, members []*member) Conflict {
	oldest := members[0]
	ru.apply(r, oldest)

	var c Conflict
	for i, m := range members {
		if ru.equal(oldest, m) {
			continue
		}
		if c.Disagree == nil {
			c = ru.conflict(oldest, m)
			c.Disagree = make([]Disagreement, 0, len(members)-i)
		}
		c.Disagree = append(c.Disagree, Disagreement{Cluster: m.cluster(), Value: ru.describe(m)})
	}
	return c
}

func (ru *rule) conflict(oldest, first *member) Conflict {
	won := ru.describe
	if ru.won != nil {
		won = ru.won
	}
	c := Conflict{Reason: ru.reason, Winner: oldest.cluster(), Won: won(oldest)}
	c.lead = ru.lead + " " + c.Won + " from " + shortID(c.Winner) + " " + ru.verb
	if ru.note != nil {
		c.note = ru.note(oldest, first)
	}
	return c
}

func affinity(m *member) corev1.ServiceAffinity {
	if m.SessionAffinity == "" {
		return corev1.ServiceAffinityNone
	}
	return m.SessionAffinity
}

// longestAffinity is the longest session affinity, in seconds, that the API server accepts: one
// day.
const longestAffinity = 86400

// timeout returns the session affinity timeout in seconds. A value that no Service can have counts
// as not set.
func timeout(m *member) int32 {
	if c := m.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if s := *c.ClientIP.TimeoutSeconds; s > 0 && s <= longestAffinity {
			return s
		}
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

func internalPolicy(m *member) corev1.ServiceInternalTrafficPolicy {
	if p := deref(m.InternalTrafficPolicy); p != "" {
		return p
	}
	return corev1.ServiceInternalTrafficPolicyCluster
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func cloneOrNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
