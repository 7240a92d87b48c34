package merge

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Conflict is one property about which clusters disagree.
type Conflict struct {
	// Reason is the reason of the Conflict condition.
	Reason mcsv1beta1.ServiceExportConditionReason
	// Winner is the cluster with precedence.
	Winner string
	// Won is the value of the service as text; long values are truncated. If ports were combined,
	// it differs from Winner's.
	Won string
	// Disagree are all clusters whose value differs from the oldest's or from the service's, by
	// precedence. It is never truncated.
	Disagree []Disagreement

	lead, note string
}

// Disagreement is a cluster and its value.
type Disagreement struct {
	Cluster string
	// Value is the cluster's value as text; long values are truncated.
	Value string
}

// Limits of messages and their parts, in bytes.
const (
	maxMessage = 32768 // the CRD's limit for the message of a condition
	maxValue   = 160
	maxWon     = 480
	maxItem    = 64
	maxID      = 63
)

// Message says which value won, from which cluster, and which clusters have which other values. It
// is at most as long as the message of a condition may be. If the clusters do not fit, the rest are
// counted.
func (c Conflict) Message() string { return c.render(maxMessage) }

// Condition returns the Conflict condition of every constituent ServiceExport, left out or not: all
// reasons joined by commas, and a message that names every conflict. Without conflicts it is False
// with the reason NoConflicts.
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
			// Room that one conflict does not need is left for the next ones.
			messages[i] = c.render(left/(len(r.Conflicts)-i) - len(separator))
			left -= len(messages[i]) + len(separator)
		}
	}
	return metav1.ConditionTrue, strings.Join(reasons, ","), strings.Join(messages, separator) + "."
}

const separator = ". "

// render returns the message in at most limit bytes, which must be enough for the longest lead, one
// value and the note.
func (c Conflict) render(limit int) string {
	var b strings.Builder
	b.WriteString(c.lead)
	tail := ""
	if c.note != "" {
		tail = "; " + c.note
	}
	// Reserves room for "; and 2147483647 more disagree".
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

// group is the clusters that have the same value, so that the message has it once.
type group struct {
	value    string
	clusters []string
}

func (c Conflict) groups() []group {
	var groups []group
	byValue := make(map[string]int, 4)
	for _, d := range c.Disagree {
		i, ok := byValue[d.Value]
		if !ok {
			i = len(groups)
			byValue[d.Value] = i
			groups = append(groups, group{value: d.Value})
		}
		groups[i].clusters = append(groups[i].clusters, d.Cluster)
	}
	return groups
}

// write names as many clusters of the group as fit before room bytes, and returns their number.
func (g group) write(b *strings.Builder, reason mcsv1beta1.ServiceExportConditionReason, room int) int {
	const separator, last = ", ", " and "
	room -= len(last) - len(separator) + len(" ask for ") + len(g.value)
	n, size := 0, b.Len()
	for _, id := range g.clusters {
		size += len(separator) + len(shortID(id))
		if size > room {
			break
		}
		n++
	}
	for i, id := range g.clusters[:n] {
		switch i {
		case 0:
			b.WriteString("; ")
		case n - 1:
			b.WriteString(last)
		default:
			b.WriteString(separator)
		}
		b.WriteString(shortID(id))
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

// describeMap returns a map as text, sorted by key.
func describeMap(m map[string]string) string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return list(len(keys), maxValue, func(i int) string { return shortItem(keys[i]) + "=" + shortItem(m[keys[i]]) })
}

// list joins items by commas within the limit, and counts the rest.
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

// shortID truncates cluster ids that no CRD validated; valid ones are never longer.
func shortID(s string) string { return cut(s, maxID) }

// cut truncates a text to at most limit bytes, at the boundary of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
