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

// gotImport is an import in one of the clusters.
type gotImport struct {
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
	return newListing(s, "imports", "ServiceImports", "  seamark get imports -n shop --contexts east,west", func(read []status.Cluster) (any, func(io.Writer, bool)) {
		items := listImports(read)
		value := struct {
			Imports []gotImport `json:"imports"`
		}{items}
		return value, func(w io.Writer, wide bool) { tellImports(w, items, time.Now(), wide) }
	})
}

func listImports(read []status.Cluster) []gotImport {
	items := []gotImport{}
	for _, o := range read {
		for i := range o.Imports {
			si := &o.Imports[i]
			item := gotImport{
				Cluster: o.ID, Namespace: si.Namespace, Name: si.Name, Created: si.CreationTimestamp.UTC(), Type: string(si.Spec.Type),
				IPs: append([]string{}, si.Spec.IPs...), Ports: []string{}, From: []string{},
				Ready:      conditionWord(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)),
				Conditions: append([]metav1.Condition{}, si.Status.Conditions...),
			}
			for _, p := range si.Spec.Ports {
				item.Ports = append(item.Ports, fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, "TCP")))
			}
			for _, c := range si.Status.Clusters {
				item.From = append(item.From, c.Cluster)
			}
			items = append(items, item)
		}
	}
	slices.SortStableFunc(items, func(a, b gotImport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return items
}

func tellImports(w io.Writer, items []gotImport, now time.Time, wide bool) {
	if len(items) == 0 {
		fmt.Fprintln(w, "No imports here. Look in all namespaces with -A; seamark status shows what the clusterset has")
		return
	}
	head := []string{"CLUSTER", "NAMESPACE", "NAME", "TYPE", "IP", "PORTS", "FROM", "READY", "AGE"}
	if wide {
		head = append(head, "SAYS")
	}
	rows := make([][]string, len(items))
	for i, e := range items {
		rows[i] = []string{e.Cluster, e.Namespace, e.Name, e.Type, text.OrDash(strings.Join(e.IPs, ",")), text.OrDash(strings.Join(e.Ports, ",")),
			text.OrDash(strings.Join(e.From, ",")), e.Ready, duration.HumanDuration(max(0, now.Sub(e.Created)))}
		if wide {
			message := "-"
			if len(e.Conditions) > 0 {
				message = e.Conditions[0].Message
			}
			rows[i] = append(rows[i], message)
		}
	}
	text.Table(w, head, rows)
}
