package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/status"
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
func (f *getFlags) read(ctx context.Context, s *session) ([]status.Cluster, error) {
	namespace := ""
	if !f.all {
		var err error
		if namespace, err = s.namespace(f.namespace); err != nil {
			return nil, err
		}
	}
	sites, err := s.openClusters(ctx, f.reach)
	if err != nil {
		return nil, err
	}
	read := make([]status.Cluster, len(sites))
	var reading sync.WaitGroup
	for i, site := range sites {
		reading.Go(func() { read[i] = site.ReadServices(ctx, namespace) })
	}
	reading.Wait()
	var problem error
	read = slices.DeleteFunc(read, func(o status.Cluster) bool {
		if o.Problem == "" {
			return false
		}
		problem = fmt.Errorf("cluster %s cannot be looked into: %s", o.ID, o.Problem)
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

// newListing is a command that lists a kind of several clusters. list returns it for programs, and how to tell it to people.
func newListing(s *session, plural, kinds, example string, list func([]status.Cluster) (value any, tell func(w io.Writer, wide bool))) *cobra.Command {
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
