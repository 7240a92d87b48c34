//go:build linux

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/sandbox"
)

// loaded is what load prints.
type loaded struct {
	Images   []string `json:"images"`
	Clusters []string `json:"clusters"`
}

func newSandboxLoad(s *session, f *sandboxFlags) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "load IMAGE.tar",
		Short: "Load an image into every cluster",
		Long: "load imports the images in a file into every cluster: a docker-archive or an OCI archive with names, also with\n" +
			"gzip, as `docker save`, skopeo and `go run ./build/images -o` write it. Nodes of a sandbox cannot pull images,\n" +
			"because they do not reach the internet.",
		Example: "  sudo seamark sandbox load my-app.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			images, err := opened.Load(cmd.Context(), args[0], s.ErrOut)
			if err != nil {
				return err
			}
			return out.print(s.Out, loaded{images, opened.Clusters()}, func(w io.Writer) {
				for _, image := range images {
					fmt.Fprintf(w, "Pods of %s can use the image %s\n", strings.Join(opened.Clusters(), ", "), image)
				}
			})
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func newSandboxDown(s *session, f *sandboxFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop a sandbox and remove everything that belongs to it",
		Long: "down stops the processes of a sandbox and removes its mounts, links, network namespaces and files. It works on a\n" +
			"sandbox in any state. Built programs stay in the user's cache, so the next up is fast.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := sandbox.Down(cmd.Context(), f.name, s.ErrOut)
			if errors.Is(err, sandbox.ErrNone) {
				fmt.Fprintf(s.Out, "There is no sandbox %s: nothing to do.\n", f.name)
				return nil
			}
			if err == nil {
				fmt.Fprintf(s.Out, "Sandbox %s is removed.\n", f.name)
			}
			return err
		},
	}
}
