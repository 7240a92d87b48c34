package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// getFlags are those of all that can be got.
type getFlags struct {
	reach     reachFlags
	watch     watchFlags
	namespace string
	all       bool
	out       look
}

func (f *getFlags) add(s *session, cmd *cobra.Command, namespaced bool) {
	cmd.Flags().SortFlags = false
	if namespaced {
		addNamespace(cmd, &f.namespace, "", "namespace to look in (default: that of the context)")
		cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "look in all namespaces")
	}
	f.reach.add(s, cmd)
	f.watch.add(cmd)
	addLook(cmd, &f.out)
}

// read reads the clusters the flags name. One that cannot be read is told on standard error; when none can, that is the error.
func (f *getFlags) read(ctx context.Context, s *session) ([]siteObjects, error) {
	namespace := ""
	if !f.all {
		var err error
		if namespace, err = s.namespace(f.namespace); err != nil {
			return nil, err
		}
	}
	sites, err := s.open(ctx, f.reach)
	if err != nil {
		return nil, err
	}
	read := make([]siteObjects, len(sites))
	var reading sync.WaitGroup
	for i, site := range sites {
		reading.Go(func() { read[i] = site.readAll(ctx, namespace) })
	}
	reading.Wait()
	var problem error
	read = slices.DeleteFunc(read, func(o siteObjects) bool {
		if o.problem == "" {
			return false
		}
		problem = fmt.Errorf("cluster %s cannot be looked into: %s", o.id, o.problem)
		return true
	})
	if len(read) == 0 {
		return nil, problem
	}
	if problem != nil {
		fmt.Fprintf(s.ErrOut, "warning: %v\n", problem)
	}
	return read, nil
}

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
	return newListing(s, "exports", "ServiceExports", "  seamark get exports -A --contexts east,west", func(read []siteObjects) (any, func(io.Writer, bool)) {
		items := listExports(read)
		value := struct {
			Exports []gotExport `json:"exports"`
		}{items}
		return value, func(w io.Writer, wide bool) { tellExports(w, items, time.Now(), wide) }
	})
}

// newListing is a command that lists a kind of several clusters. list returns it for programs, and how to tell it to people.
func newListing(s *session, plural, kinds, example string, list func([]siteObjects) (value any, tell func(w io.Writer, wide bool))) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:     plural,
		Aliases: []string{strings.TrimSuffix(plural, "s"), strings.ToLower(kinds)},
		Short:   "List " + kinds + " of several clusters",
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.watch.run(cmd.Context(), s, func(ctx context.Context, w io.Writer) error {
				read, err := f.read(ctx, s)
				if err != nil {
					return err
				}
				value, tell := list(read)
				return f.out.print(w, value, func(w io.Writer) { tell(w, f.out.wide) })
			})
		},
	}
	f.add(s, cmd, true)
	return cmd
}

func listExports(read []siteObjects) []gotExport {
	items := []gotExport{}
	for _, o := range read {
		for i := range o.exports {
			e := &o.exports[i]
			items = append(items, gotExport{
				Cluster: o.id, Namespace: e.Namespace, Name: e.Name, Created: e.CreationTimestamp.UTC(),
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
	writeTable(w, head, rows)
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
	return newListing(s, "imports", "ServiceImports", "  seamark get imports -n shop --contexts east,west", func(read []siteObjects) (any, func(io.Writer, bool)) {
		items := listImports(read)
		value := struct {
			Imports []gotImport `json:"imports"`
		}{items}
		return value, func(w io.Writer, wide bool) { tellImports(w, items, time.Now(), wide) }
	})
}

func listImports(read []siteObjects) []gotImport {
	items := []gotImport{}
	for _, o := range read {
		for i := range o.imports {
			si := &o.imports[i]
			item := gotImport{
				Cluster: o.id, Namespace: si.Namespace, Name: si.Name, Created: si.CreationTimestamp.UTC(), Type: string(si.Spec.Type),
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
		rows[i] = []string{e.Cluster, e.Namespace, e.Name, e.Type, orDash(strings.Join(e.IPs, ",")), orDash(strings.Join(e.Ports, ",")),
			orDash(strings.Join(e.From, ",")), e.Ready, duration.HumanDuration(max(0, now.Sub(e.Created)))}
		if wide {
			message := "-"
			if len(e.Conditions) > 0 {
				message = e.Conditions[0].Message
			}
			rows[i] = append(rows[i], message)
		}
	}
	writeTable(w, head, rows)
}
