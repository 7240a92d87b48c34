package merge

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Conflict is one property about which clusters disagree.
type Conflict struct {
	// Reason is the name of the conflict in the Conflict condition.
	Reason mcsv1beta1.ServiceExportConditionReason
	// Winner is the cluster with precedence.
	Winner string
	// Won is what the service has, as people read it; long values are cut short. Where ports or IP families were
	// combined it is not what Winner has alone.
	Won string
	// Disagree are all clusters that have something else than the oldest, or than what the service has, in order of
	// precedence. Never cut short.
	Disagree []Disagreement

	lead, note string
}

// Disagreement is a cluster and what it has instead of what won.
type Disagreement struct {
	Cluster string
	// Value is what the cluster has, as people read it; long values are cut short.
	Value string
}

// Lengths of what is written into messages, in bytes.
const (
	maxMessage = 32768 // the CRD's limit for the message of a condition
	maxValue   = 160
	maxWon     = 480
	maxItem    = 64
	maxID      = 63
)

// Message tells which value won, from which cluster, and which clusters disagree with what. It is at most as long as the
// message of a condition may be; only then some of the clusters are counted instead of named.
func (c Conflict) Message() string { return c.render(maxMessage) }

// Condition returns the Conflict condition that every constituent ServiceExport gets, left out or not: every reason joined
// by commas, and a message that names every conflict. Without conflicts it is False with the reason NoConflicts.
func (r Result) Condition() (status metav1.ConditionStatus, reason, message string) {
	if len(r.Conflicts) == 0 {
		return metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts),
			"the clusters that export this service agree"
	}
	reasons := make([]string, len(r.Conflicts))
	messages := make([]string, len(r.Conflicts))
	total := 0
	for i, c := range r.Conflicts {
		reasons[i] = string(c.Reason)
		messages[i] = c.Message()
		total += len(messages[i]) + len(separator)
	}
	if total > maxMessage {
		left := maxMessage
		for i, c := range r.Conflicts {
			// What one does not need is there for those after it.
			messages[i] = c.render(left/(len(r.Conflicts)-i) - len(separator))
			left -= len(messages[i]) + len(separator)
		}
	}
	return metav1.ConditionTrue, strings.Join(reasons, ","), strings.Join(messages, separator) + "."
}

const separator = ". "

// render writes the message into limit bytes, which must be enough for the longest lead, one value and the note.
func (c Conflict) render(limit int) string {
	var b strings.Builder
	b.WriteString(c.lead)
	tail := ""
	if c.note != "" {
		tail = "; " + c.note
	}
	// Room for "; and 2147483647 more disagree" is kept free until it is known not to be needed.
	room := limit - len(tail) - 32
	named := 0
	for _, g := range c.groups() {
		n := g.write(&b, c.Reason, room)
		named += n
		if n < len(g.clusters) {
			break
		}
	}
	if more := len(c.Disagree) - named; more > 0 {
		b.WriteString("; and " + strconv.Itoa(more) + " more disagree")
	}
	b.WriteString(tail)
	return b.String()
}

// group is the clusters that have the same value, which need not be repeated for each.
type group struct {
	value    string
	clusters []string
}

func (c Conflict) groups() []group {
	var groups []group
	place := make(map[string]int, 4)
	for _, d := range c.Disagree {
		i, ok := place[d.Value]
		if !ok {
			i = len(groups)
			place[d.Value] = i
			groups = append(groups, group{value: d.Value})
		}
		groups[i].clusters = append(groups[i].clusters, d.Cluster)
	}
	return groups
}

// write names as many clusters of the group as fit before room bytes, and returns how many.
func (g group) write(b *strings.Builder, reason mcsv1beta1.ServiceExportConditionReason, room int) int {
	room -= len(" ask for ") + len(g.value)
	n := 0
	for _, id := range g.clusters {
		sep := ", "
		if n == 0 {
			sep = "; "
		}
		id = shortID(id)
		if b.Len()+len(sep)+len(id) > room {
			break
		}
		b.WriteString(sep)
		b.WriteString(id)
		n++
	}
	if n > 0 {
		b.WriteString(verb(reason, n))
		b.WriteString(g.value)
	}
	return n
}

func verb(reason mcsv1beta1.ServiceExportConditionReason, n int) string {
	switch {
	case reason == v1alpha1.ServiceExportReasonClusterSetIPConflict && n == 1:
		return " asks for "
	case reason == v1alpha1.ServiceExportReasonClusterSetIPConflict:
		return " ask for "
	case n == 1:
		return " has "
	default:
		return " have "
	}
}

// describeMap lists a map by its keys.
func describeMap(m map[string]string) string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return list(len(keys), maxValue, func(i int) string { return shortItem(keys[i]) + "=" + shortItem(m[keys[i]]) })
}

// list joins items by commas, as far as limit allows, and counts the rest.
func list(n, limit int, item func(i int) string) string {
	if n == 1 {
		return item(0)
	}
	var b strings.Builder
	b.Grow(min(n*20, limit))
	for i := range n {
		text := item(i)
		if b.Len() > 0 && b.Len()+len(text) > limit {
			b.WriteString(" and " + strconv.Itoa(n-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(text)
	}
	return orNone(b.String())
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func short(s string) string     { return cut(s, maxValue) }
func shortItem(s string) string { return cut(s, maxItem) }

// shortID is for identifiers that no CRD has looked at; valid ones are never longer.
func shortID(s string) string { return cut(s, maxID) }

// cut ends a text at a character's boundary not after limit bytes.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
