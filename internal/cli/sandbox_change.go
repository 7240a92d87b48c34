//go:build linux

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/text"
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

// partitions is what partition and heal print.
type partitions struct {
	Partitions []sandbox.Pair `json:"partitions"`
}

func newSandboxPartition(s *session, f *sandboxFlags) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:     "partition CLUSTER CLUSTER",
		Short:   "Cut the network between two clusters",
		Example: "  sudo seamark sandbox partition east west",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			if err := opened.Partition(cmd.Context(), args[0], args[1]); err != nil {
				return err
			}
			return out.print(s.Out, partitions{opened.Partitions()}, func(w io.Writer) {
				fmt.Fprintf(w, "%s and %s are cut off from each other.\nNext: seamark sandbox heal\n", args[0], args[1])
			})
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func newSandboxHeal(s *session, f *sandboxFlags) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "heal [CLUSTER CLUSTER]",
		Short: "End the partition of two clusters, or all partitions",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return errors.New("name two clusters, or none for all")
			}
			return cobra.MaximumNArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			if err := opened.Heal(cmd.Context(), args...); err != nil {
				return err
			}
			return out.print(s.Out, partitions{opened.Partitions()}, func(w io.Writer) {
				if left := len(opened.Partitions()); left > 0 {
					fmt.Fprintf(w, "Healed; %s left.\n", text.Plural(left, "partition"))
					return
				}
				fmt.Fprintln(w, "All clusters reach each other.")
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
