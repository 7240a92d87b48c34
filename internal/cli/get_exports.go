package cli

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

// listedExport is an export in one of the clusters.
type listedExport struct {
	Cluster    string             `json:"cluster"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Created    time.Time          `json:"created"`
	Valid      string             `json:"valid"`
	Ready      string             `json:"ready"`
	Conflict   string             `json:"conflict"`
	Conditions []metav1.Condition `json:"conditions"`
}

func newGetExports(s *session) *cobra.Command {
	const example = "  seamark get exports -A --contexts east,west"
	return newListing(s, "exports", "ServiceExports", example, func(clusters []status.Cluster) listing {
		items := listExports(clusters)
		value := struct {
			Exports []listedExport `json:"exports"`
		}{items}
		return listing{
			value: value, table: func(w io.Writer, wide bool) { printExports(w, items, time.Now(), wide) }, empty: len(items) == 0,
			none:         "No exports here. Next: seamark export service NAME, or -A for all namespaces",
			noneAnywhere: "No exports in any namespace. Next: seamark export service NAME",
		}
	})
}

func listExports(clusters []status.Cluster) []listedExport {
	items := []listedExport{}
	for _, c := range clusters {
		for i := range c.Exports {
			e := &c.Exports[i]
			items = append(items, listedExport{
				Cluster: c.ID, Namespace: e.Namespace, Name: e.Name, Created: e.CreationTimestamp.UTC(),
				Valid:      conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid)),
				Ready:      conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)),
				Conflict:   conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict)),
				Conditions: append([]metav1.Condition{}, e.Status.Conditions...),
			})
		}
	}
	slices.SortStableFunc(items, func(a, b listedExport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return items
}

// conditionWord returns the status of a condition, with the reason if something is wrong; Unknown
// if the condition is not set.
func conditionWord(conditions []metav1.Condition, of string) string {
	c := meta.FindStatusCondition(conditions, of)
	switch {
	case c == nil:
		return "Unknown"
	case (c.Status == metav1.ConditionTrue) != (of == string(mcsv1beta1.ServiceExportConditionConflict)):
		return string(c.Status)
	}
	return string(c.Status) + "/" + c.Reason
}

func printExports(w io.Writer, items []listedExport, now time.Time, wide bool) {
	head := []string{"CLUSTER", "NAMESPACE", "NAME", "VALID", "READY", "CONFLICT", "AGE"}
	if wide {
		head = append(head, "MESSAGE")
	}
	rows := make([][]string, len(items))
	for i, e := range items {
		rows[i] = []string{e.Cluster, e.Namespace, e.Name, e.Valid, e.Ready, e.Conflict, duration.HumanDuration(max(0, now.Sub(e.Created)))}
		if wide {
			rows[i] = append(rows[i], firstProblem(e.Conditions))
		}
	}
	text.Table(w, head, rows)
}

// firstProblem returns the message of the first condition that reports a problem.
func firstProblem(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if (c.Status == metav1.ConditionTrue) == (c.Type == string(mcsv1beta1.ServiceExportConditionConflict)) {
			return c.Message
		}
	}
	return "-"
}
