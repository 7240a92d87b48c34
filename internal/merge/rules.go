package merge

import (
	"maps"
	"strconv"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// rule decides one property by precedence alone: the service gets what the oldest has.
type rule struct {
	reason mcsv1beta1.ServiceExportConditionReason
	// lead is how a message starts, before the value that won; verb how its sentence ends.
	lead, verb string
	// apply gives the service what the oldest has.
	apply func(r *Result, oldest *member)
	// equal tells whether a member agrees with the oldest.
	equal func(oldest, m *member) bool
	// describe is what a member has, as people read it.
	describe func(m *member) string
	// won is what the service has, where describe does not say so of the oldest.
	won func(oldest *member) string
	// note follows from the conflict, given the first that disagrees; may be nil.
	note func(oldest, first *member) string
}

// rules are walked in this order, which is that of the conflicts in a message. Types, ports and families do more than follow
// the oldest and are merged on their own.
//
// The MCS API ignores session affinity where the service is headless, and nothing reads the policies there. They are merged
// and reported all the same: the exports do disagree, and the day the service gets an IP it matters.
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
			// A Service without ClientIP affinity is refused if it has a config.
			if affinity(oldest) == corev1.ServiceAffinityClientIP {
				seconds := timeout(oldest)
				r.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
				}
			}
		},
		equal: func(oldest, m *member) bool {
			// Whoever disagrees about the affinity itself is told so; its timeout would be noise.
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
		// What counts is what the oldest asked for when it was made, against what each asks for now: by the
		// specification of clusterset IPs a later change of the annotation changes nothing but this condition. So the
		// oldest can disagree with itself.
		reason: v1alpha1.ServiceExportReasonClusterSetIPConflict,
		lead:   "clusterset IP",
		verb:   "wins",
		apply:  func(*Result, *member) {}, // the mode says it
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

// merge applies the rule and returns the conflict, which is none if nobody disagrees.
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

// longestAffinity is the longest session affinity, in seconds, that the API server accepts: one day.
const longestAffinity = 86400

// timeout is how long a client stays with its pod. What a Service could not have counts as not set.
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
