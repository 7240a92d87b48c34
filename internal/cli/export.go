package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
)

const exportPoll = 100 * time.Millisecond

// exported is what export prints of one service.
type exported struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Action    brokeradmin.Action `json:"action"`
	// Ready reports whether it is published to the clusterset.
	Ready      bool               `json:"ready"`
	Conditions []metav1.Condition `json:"conditions"`
	// zone is the zone of the clusterset's names in this cluster.
	zone string
}

func newExportService(s *session) *cobra.Command {
	var (
		namespace string
		waiting   bool
		timeout   time.Duration
		out       format
	)
	cmd := &cobra.Command{
		Use:   "service NAME",
		Short: "Export a Service to the clusterset",
		Long: "export service creates a ServiceExport. With --wait it returns when the service is published to the clusterset,\n" +
			"and prints its name and its conflicts with other clusters.",
		Example: "  seamark export service web -n shop --wait",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := s.namespace(namespace)
			if err != nil {
				return err
			}
			connection, err := s.connect()
			if err != nil {
				return err
			}
			result, err := s.export(cmd.Context(), connection.Client, types.NamespacedName{Namespace: ns, Name: args[0]})
			if err != nil {
				return err
			}
			var failure error
			if waiting {
				failure = result.await(cmd.Context(), connection.Client, timeout)
			}
			if failure != nil && out == asText {
				return failure
			}
			result.zone = survey.Zone(cmd.Context(), connection.Client)
			if err := out.print(s.Out, result, func(w io.Writer) { printExported(w, result) }); err != nil {
				return err
			}
			return failure
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addNamespace(cmd, &namespace, "", "namespace of the Service (default: that of the context)")
	flags.BoolVar(&waiting, "wait", false, "wait until the service is published")
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	addOutput(cmd, &out)
	return cmd
}

// export creates the ServiceExport unless it exists. It fails if there is no Service to export.
func (s *session) export(ctx context.Context, c client.Client, key types.NamespacedName) (*exported, error) {
	service := &corev1.Service{}
	err := c.Get(ctx, key, service)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Service %s in namespace %s: create it first, or choose another namespace with -n",
			key.Name, key.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s: %w", key, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, fmt.Errorf("the Service %s is of type ExternalName, which cannot be exported: create one in each cluster instead", key)
	}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	result := &exported{Namespace: key.Namespace, Name: key.Name, Action: brokeradmin.Created}
	err = c.Create(ctx, export)
	if apierrors.IsAlreadyExists(err) {
		result.Action = brokeradmin.Unchanged
		err = c.Get(ctx, key, export)
	}
	if meta.IsNoMatchError(err) {
		return nil, errNotMember
	}
	if err != nil {
		return nil, fmt.Errorf("create ServiceExport %s: %w", key, err)
	}
	result.observe(export)
	s.warnNotMember(ctx, c)
	return result, nil
}

// errNotMember is returned where the CRD of ServiceExports is not installed.
var errNotMember = errors.New("the CRD of ServiceExports is not installed: make this cluster a member of a clusterset first (seamark join)")

// warnNotMember warns if no agent will publish the exports of this cluster.
func (s *session) warnNotMember(ctx context.Context, c client.Client) {
	if local, err := brokeradmin.ReadLocal(ctx, c); err == nil && local.ClusterSet == "" {
		fmt.Fprintln(s.ErrOut, "warning: this cluster is not a member of a clusterset: nothing is published before seamark join")
	}
}

func (r *exported) observe(export *mcsv1beta1.ServiceExport) {
	r.Conditions = append([]metav1.Condition{}, export.Status.Conditions...)
	ready := r.condition(mcsv1beta1.ServiceExportConditionReady)
	r.Ready = ready != nil && ready.Status == metav1.ConditionTrue
}

func (r *exported) condition(t mcsv1beta1.ServiceExportConditionType) *metav1.Condition {
	return meta.FindStatusCondition(r.Conditions, string(t))
}

// await waits until the export is published. It fails at once on a problem that only the user can
// solve.
func (r *exported) await(ctx context.Context, c client.Client, timeout time.Duration) error {
	var refused error
	err := wait.PollUntilContextTimeout(ctx, exportPoll, timeout, true, func(ctx context.Context) (bool, error) {
		export := &mcsv1beta1.ServiceExport{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, export); err != nil {
			return false, err
		}
		r.observe(export)
		refused = r.refusal()
		return r.Ready || refused != nil, nil
	})
	switch {
	case refused != nil:
		return refused
	case err == nil:
		return nil
	case wait.Interrupted(err):
		why := "no agent has set its conditions: does seamark-agent run for this cluster?"
		if ready := r.condition(mcsv1beta1.ServiceExportConditionReady); ready != nil {
			why = ready.Message
		}
		return fmt.Errorf("service %s/%s is not published after %s: %s", r.Namespace, r.Name, timeout, why)
	}
	return fmt.Errorf("wait for ServiceExport %s/%s: %w", r.Namespace, r.Name, err)
}

// refusal returns the problem of an export that cannot be solved by waiting, or nil.
func (r *exported) refusal() error {
	for _, t := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		c := r.condition(t)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		if t == mcsv1beta1.ServiceExportConditionValid || slices.Contains(finalReasons, mcsv1beta1.ServiceExportConditionReason(c.Reason)) {
			return fmt.Errorf("service %s/%s is not published (%s): %s", r.Namespace, r.Name, c.Reason, c.Message)
		}
	}
	return nil
}

// dnsName returns the name of the service in the clusterset.
func (r *exported) dnsName() string {
	return objects.DNSName(types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.zone)
}

func printExported(w io.Writer, r *exported) {
	switch {
	case r.Ready:
		fmt.Fprintf(w, "Service %s/%s is published to the clusterset as %s.\n", r.Namespace, r.Name, r.dnsName())
	case r.Action == brokeradmin.Created:
		fmt.Fprintf(w, "Service %s/%s is exported. Its state: kubectl -n %s get serviceexport %s, or --wait.\n",
			r.Namespace, r.Name, r.Namespace, r.Name)
	default:
		fmt.Fprintf(w, "Service %s/%s was exported already.\n", r.Namespace, r.Name)
	}
	if conflict := r.condition(mcsv1beta1.ServiceExportConditionConflict); conflict != nil && conflict.Status == metav1.ConditionTrue {
		fmt.Fprintf(w, "It is in conflict with other clusters' exports (%s): %s\n", conflict.Reason, conflict.Message)
	}
}

// finalReasons are the reasons of Ready=False that do not pass by waiting: the user or the broker's
// admin has to act.
var finalReasons = []mcsv1beta1.ServiceExportConditionReason{
	mcsv1beta1.ServiceExportReasonFailed,
	v1alpha1.ServiceExportReasonRefusedByBroker,
	v1alpha1.ServiceExportReasonClusterIDTaken,
	mcsv1beta1.ServiceExportReasonTypeConflict,
	mcsv1beta1.ServiceExportReasonIPFamilyConflict,
}
