package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
)

// bulkFlags are the flags of exporting many services at once.
type bulkFlags struct {
	selector    string
	yes, dryRun bool
}

func (f *bulkFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "export the Services with these labels, such as tier=backend")
	flags.BoolVarP(&f.yes, "yes", "y", false, "export without asking")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show what would be exported")
}

func newExportNamespace(s *session) *cobra.Command {
	var (
		f   bulkFlags
		out format
	)
	cmd := &cobra.Command{
		Use:   "namespace NAME",
		Short: "Export all Services of a namespace, once",
		Long: "export namespace exports the Services that a namespace has now: it lists them, asks, and creates a ServiceExport\n" +
			"for each. Services that are created later are not exported. Services that cannot be exported, or are exported\n" +
			"already, are listed as such and left out.",
		Example: "  seamark export namespace shop --dry-run\n" +
			"  seamark export namespace shop --selector tier=backend --yes",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.exportMany(cmd.Context(), args[0], f, out) },
	}
	cmd.Flags().SortFlags = false
	f.add(cmd)
	addOutput(cmd, &out)
	return cmd
}

// withSelector makes a command that exports one Service by name export many by label too.
func withSelector(s *session, cmd *cobra.Command) *cobra.Command {
	var f bulkFlags
	one := cmd.RunE
	cmd.Use = "service (NAME | --selector LABELS)"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("selector") {
			if len(args) > 0 {
				return usagef("give the name of a Service or --selector, not both")
			}
			return nil
		}
		if f.yes || f.dryRun {
			return usagef("--yes and --dry-run go with --selector")
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("selector") {
			return one(cmd, args)
		}
		if waiting := cmd.Flags().Lookup("wait"); waiting != nil && waiting.Changed {
			return usagef("--wait goes with the name of one Service; seamark status shows the state of many")
		}
		given, err := cmd.Flags().GetString("namespace")
		if err != nil {
			return err
		}
		namespace, err := s.namespace(given)
		if err != nil {
			return err
		}
		var out format
		if err := out.Set(cmd.Flags().Lookup("output").Value.String()); err != nil {
			return err
		}
		return s.exportMany(cmd.Context(), namespace, f, out)
	}
	cmd.Example += "\n  seamark export service --selector tier=backend -n shop --dry-run"
	f.add(cmd)
	return cmd
}

// Actions of a bulk export.
const (
	bulkPlanned = "would export"
	bulkCreated = "exported"
	bulkExists  = "already exported"
	bulkSkipped = "skipped"
)

// bulkItem is one Service of a bulk export.
type bulkItem struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Action    string `json:"action"`
	// Why says why it is skipped.
	Why string `json:"why,omitempty"`
}

// exportMany lists what would be exported, asks, and exports it.
func (s *session) exportMany(ctx context.Context, namespace string, f bulkFlags, out format) error {
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return usagef("--selector %q: %w", f.selector, err)
	}
	connection, err := s.connect()
	if err != nil {
		return err
	}
	items, err := planMany(ctx, connection.Client, namespace, selector)
	if err != nil {
		return err
	}
	planned := slices.ContainsFunc(items, func(i bulkItem) bool { return i.Action == bulkPlanned })
	if !f.yes && !f.dryRun && planned {
		if !isTerminal(s.In) {
			return usagef("this is not a terminal, so the export cannot be confirmed: " +
				"use --yes to export, or --dry-run to list what would be exported")
		}
		// The question goes to standard error: standard output is for the result.
		printMany(s.ErrOut, namespace, items)
		if !confirmed(s.In, s.ErrOut) {
			return fmt.Errorf("nothing was exported")
		}
	}
	if !f.dryRun {
		if err := createMany(ctx, connection.Client, items); err != nil {
			return err
		}
		s.warnNamespace(ctx, connection.Client, namespace)
	}
	value := struct {
		Services []bulkItem `json:"services"`
	}{items}
	return out.print(s.Out, value, func(w io.Writer) { printMany(w, namespace, items) })
}

// planMany returns the action for every Service of a namespace.
func planMany(ctx context.Context, c client.Client, namespace string, selector labels.Selector) ([]bulkItem, error) {
	if err := c.Get(ctx, types.NamespacedName{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no namespace %s in this cluster", namespace)
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the Services of %s: %w", namespace, err)
	}
	var exports mcsv1beta1.ServiceExportList
	err := c.List(ctx, &exports, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) {
		return nil, errNotMember
	}
	if err != nil {
		return nil, fmt.Errorf("list the ServiceExports of %s: %w", namespace, err)
	}
	exported := map[string]bool{}
	for i := range exports.Items {
		exported[exports.Items[i].Name] = true
	}
	items := make([]bulkItem, 0, len(services.Items))
	for i := range services.Items {
		if _, derived := objects.DerivedFrom(&services.Items[i]); derived {
			continue // the agent created it; it is no Service of the user
		}
		items = append(items, planOne(&services.Items[i], exported))
	}
	return items, nil
}

// planOne returns the action for one Service.
func planOne(svc *corev1.Service, exported map[string]bool) bulkItem {
	item := bulkItem{Namespace: svc.Namespace, Name: svc.Name, Type: string(svc.Spec.Type), Action: bulkPlanned}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		item.Type = "Headless"
	}
	switch {
	case exported[svc.Name]:
		item.Action = bulkExists
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		item.Action, item.Why = bulkSkipped, "an ExternalName Service cannot be exported: create one in each cluster instead"
	case svc.Namespace == metav1.NamespaceDefault && svc.Name == "kubernetes":
		item.Action, item.Why = bulkSkipped, "it is this cluster's own API server"
	}
	return item
}

func createMany(ctx context.Context, c client.Client, items []bulkItem) error {
	for i := range items {
		if items[i].Action != bulkPlanned {
			continue
		}
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: items[i].Namespace, Name: items[i].Name}}
		switch err := c.Create(ctx, export); {
		case apierrors.IsAlreadyExists(err):
			items[i].Action = bulkExists // created since it was planned
		case err != nil:
			return fmt.Errorf("create ServiceExport %s/%s (those before it are created; run it again to create the rest): %w",
				items[i].Namespace, items[i].Name, err)
		default:
			items[i].Action = bulkCreated
		}
	}
	return nil
}

// warnNamespace warns if the exports of a namespace will not be published.
func (s *session) warnNamespace(ctx context.Context, c client.Client, namespace string) {
	s.warnNotMember(ctx, c)
	if objects.IsReserved(namespace) {
		fmt.Fprintf(s.ErrOut, "warning: %s is a system namespace: its exports are not published unless the broker's admin allows it\n", namespace)
	}
}

func confirmed(in io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "Export them? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func printMany(w io.Writer, namespace string, items []bulkItem) {
	if len(items) == 0 {
		fmt.Fprintf(w, "There is no such Service in namespace %s.\n", namespace)
		return
	}
	rows := make([][]string, len(items))
	counts := map[string]int{}
	for i, item := range items {
		counts[item.Action]++
		action := item.Action
		if item.Why != "" {
			action += ": " + item.Why
		}
		rows[i] = []string{item.Name, item.Type, action}
	}
	text.Table(w, []string{"SERVICE", "TYPE", "ACTION"}, rows)
	var sums []string
	for _, action := range []string{bulkCreated, bulkPlanned, bulkExists, bulkSkipped} {
		if counts[action] > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", counts[action], action))
		}
	}
	fmt.Fprintf(w, "\nNamespace %s: %s.\n", namespace, strings.Join(sums, ", "))
	if counts[bulkCreated] > 0 {
		fmt.Fprintln(w, "Next: seamark status shows their state.")
	}
}
