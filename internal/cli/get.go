package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
)

// getFlags are the flags of all get commands.
type getFlags struct {
	contexts  contextFlags
	watch     watchFlags
	namespace string
	all       bool
	out       wideFormat
}

func (f *getFlags) add(s *session, cmd *cobra.Command, namespaced bool) {
	cmd.Flags().SortFlags = false
	if namespaced {
		addNamespace(cmd, &f.namespace, "", "namespace to look in (default: that of the context)")
		cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "look in all namespaces")
	}
	f.contexts.add(s, cmd)
	f.watch.add(cmd)
	addWideOutput(cmd, &f.out)
}

// read reads the exports and imports of the clusters that the flags name. It warns about a cluster
// that cannot be read, and fails if none can.
func (f *getFlags) read(ctx context.Context, s *session) ([]status.Cluster, error) {
	namespace := ""
	if !f.all {
		var err error
		if namespace, err = s.namespace(f.namespace); err != nil {
			return nil, err
		}
	}
	clusters, err := s.openClusters(ctx, f.contexts)
	if err != nil {
		return nil, err
	}
	var problem error
	read := slices.DeleteFunc(survey.ReadServices(ctx, clusters, namespace), func(c status.Cluster) bool {
		if c.Problem == "" {
			return false
		}
		problem = fmt.Errorf("cluster %s cannot be looked into: %s", c.ID, c.Problem)
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

// listing is what a get command found: value is printed as JSON or YAML, table as text.
type listing struct {
	value any
	table func(w io.Writer, wide bool)
	// none and noneAnywhere are printed if nothing was found, in one or in all namespaces.
	none, noneAnywhere string
	empty              bool
}

// newListing returns a command that lists objects of one kind from several clusters.
func newListing(s *session, plural, kinds, example string, list func([]status.Cluster) listing) *cobra.Command {
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
				found := list(read)
				return f.out.print(w, found.value, func(w io.Writer) {
					switch {
					case !found.empty:
						found.table(w, f.out.wide)
					case f.all:
						fmt.Fprintln(w, found.noneAnywhere)
					default:
						fmt.Fprintln(w, found.none)
					}
				})
			})
		},
	}
	f.add(s, cmd, true)
	return cmd
}
