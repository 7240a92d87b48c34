package cli

import (
	"cmp"
	"fmt"
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

// gotExport is an export in one of the clusters.
type gotExport struct {
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
	return newListing(s, "exports", "ServiceExports", "  seamark get exports -A --contexts east,west", func(read []status.Cluster) (any, func(io.Writer, bool)) {
		items := listExports(read)
		value := struct {
			Exports []gotExport `json:"exports"`
		}{items}
		return value, func(w io.Writer, wide bool) { tellExports(w, items, time.Now(), wide) }
	})
}

func listExports(read []status.Cluster) []gotExport {
	items := []gotExport{}
	for _, o := range read {
		for i := range o.Exports {
			e := &o.Exports[i]
			items = append(items, gotExport{
				Cluster: o.ID, Namespace: e.Namespace, Name: e.Name, Created: e.CreationTimestamp.UTC(),
				Valid:      conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid)),
				Ready:      conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)),
				Conflict:   conditionWord(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict)),
				Conditions: append([]metav1.Condition{}, e.Status.Conditions...),
			})
		}
	}
	slices.SortStableFunc(items, func(a, b gotExport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return items
}

// conditionWord is a condition in one word: True, or False and its reason, or Unknown where nobody has said.
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

func tellExports(w io.Writer, items []gotExport, now time.Time, wide bool) {
	if len(items) == 0 {
		fmt.Fprintln(w, "No exports here. Next: seamark export service NAME, or -A for all namespaces")
		return
	}
	head := []string{"CLUSTER", "NAMESPACE", "NAME", "VALID", "READY", "CONFLICT", "AGE"}
	if wide {
		head = append(head, "SAYS")
	}
	rows := make([][]string, len(items))
	for i, e := range items {
		rows[i] = []string{e.Cluster, e.Namespace, e.Name, e.Valid, e.Ready, e.Conflict, duration.HumanDuration(max(0, now.Sub(e.Created)))}
		if wide {
			rows[i] = append(rows[i], says(e.Conditions))
		}
	}
	text.Table(w, head, rows)
}

// says is the message that matters most: of the first condition that is not as it should be.
func says(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if (c.Status == metav1.ConditionTrue) == (c.Type == string(mcsv1beta1.ServiceExportConditionConflict)) {
			return c.Message
		}
	}
	return "-"
}
