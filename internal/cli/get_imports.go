package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

// listedImport is an import in one of the clusters.
type listedImport struct {
	Cluster    string             `json:"cluster"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Created    time.Time          `json:"created"`
	Type       string             `json:"type"`
	IPs        []string           `json:"ips"`
	Ports      []string           `json:"ports"`
	From       []string           `json:"from"`
	Ready      string             `json:"ready"`
	Conditions []metav1.Condition `json:"conditions"`
}

func newGetImports(s *session) *cobra.Command {
	const example = "  seamark get imports -n shop --contexts east,west"
	return newListing(s, "imports", "ServiceImports", example, func(clusters []status.Cluster) listing {
		items := listImports(clusters)
		value := struct {
			Imports []listedImport `json:"imports"`
		}{items}
		return listing{
			value: value, table: func(w io.Writer, wide bool) { printImports(w, items, time.Now(), wide) }, empty: len(items) == 0,
			none:         "No imports here. Look in all namespaces with -A; seamark status shows what the clusterset has",
			noneAnywhere: "No imports in any namespace; seamark status shows what the clusterset has",
		}
	})
}

func listImports(clusters []status.Cluster) []listedImport {
	items := []listedImport{}
	for _, c := range clusters {
		for i := range c.Imports {
			si := &c.Imports[i]
			item := listedImport{
				Cluster: c.ID, Namespace: si.Namespace, Name: si.Name, Created: si.CreationTimestamp.UTC(), Type: string(si.Spec.Type),
				IPs: append([]string{}, si.Spec.IPs...), Ports: []string{}, From: []string{},
				Ready:      conditionWord(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)),
				Conditions: append([]metav1.Condition{}, si.Status.Conditions...),
			}
			for _, p := range si.Spec.Ports {
				item.Ports = append(item.Ports, fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, "TCP")))
			}
			for _, source := range si.Status.Clusters {
				item.From = append(item.From, source.Cluster)
			}
			items = append(items, item)
		}
	}
	slices.SortStableFunc(items, func(a, b listedImport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return items
}

func printImports(w io.Writer, items []listedImport, now time.Time, wide bool) {
	head := []string{"CLUSTER", "NAMESPACE", "NAME", "TYPE", "IP", "PORTS", "FROM", "READY", "AGE"}
	if wide {
		head = append(head, "MESSAGE")
	}
	rows := make([][]string, len(items))
	for i, e := range items {
		rows[i] = []string{e.Cluster, e.Namespace, e.Name, e.Type, text.OrDash(strings.Join(e.IPs, ",")), text.OrDash(strings.Join(e.Ports, ",")),
			text.OrDash(strings.Join(e.From, ",")), e.Ready, duration.HumanDuration(max(0, now.Sub(e.Created)))}
		if wide {
			rows[i] = append(rows[i], text.OrDash(strings.Join(messages(e.Conditions), "; ")))
		}
	}
	text.Table(w, head, rows)
}

// messages returns what all conditions of an import say: kept stale endpoints and refused addresses
// are conditions of their own beside Ready.
func messages(conditions []metav1.Condition) []string {
	out := make([]string, len(conditions))
	for i, c := range conditions {
		out[i] = c.Message
	}
	return out
}
