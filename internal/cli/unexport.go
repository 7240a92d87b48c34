package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
)

// unexported is what unexport prints.
type unexported struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Action    brokeradmin.Action `json:"action"`
}

func newUnexportService(s *session) *cobra.Command {
	var (
		namespace string
		out       format
	)
	cmd := &cobra.Command{
		Use:     "service NAME",
		Short:   "Stop exporting a Service; the Service itself stays",
		Example: "  seamark unexport service web -n shop",
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
			result := unexported{Namespace: ns, Name: args[0], Action: brokeradmin.Deleted}
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: args[0]}}
			err = connection.Client.Delete(cmd.Context(), export)
			if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				result.Action, err = brokeradmin.Unchanged, nil
			}
			if err != nil {
				return fmt.Errorf("delete ServiceExport %s/%s: %w", ns, args[0], err)
			}
			return out.print(s.Out, result, func(w io.Writer) { printUnexported(w, result) })
		},
	}
	addNamespace(cmd, &namespace, "", "namespace of the Service (default: that of the context)")
	addOutput(cmd, &out)
	return cmd
}

func printUnexported(w io.Writer, r unexported) {
	if r.Action == brokeradmin.Unchanged {
		fmt.Fprintf(w, "Service %s/%s was not exported.\n", r.Namespace, r.Name)
		return
	}
	fmt.Fprintf(w, "Service %s/%s is no longer exported by this cluster.\n", r.Namespace, r.Name)
}
