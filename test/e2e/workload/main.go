// Command workload is the program in the pods of tests and of the demo: a server that answers with
// the name of its cluster and pod, a client that counts the answers, DNS lookups, and a pause that
// keeps a pod (or a pod sandbox) running.
//
//	workload serve                                        HTTP on :8080, TCP and UDP on :9090
//	workload call http://web.shop.svc.clusterset.local:8080 --count 20
//	workload call dns://web.shop.svc.clusterset.local --duration 10s
//	workload lookup web.shop.svc.clusterset.local --type SRV
//	workload pause
//
// It is a static binary that needs no shell, so its image holds nothing else.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{Use: "workload", Short: "Serve, call and look up names in pods", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newServe(), newCall(), newLookup(), newPause())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

// printJSON writes one result, indented, to standard output.
func printJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func newPause() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Do nothing until a signal comes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// In a pod that shares its process namespace this is process 1, which has to reap orphans.
			children := make(chan os.Signal, 16)
			signal.Notify(children, syscall.SIGCHLD)
			for {
				select {
				case <-cmd.Context().Done():
					return nil
				case <-children:
					reapChildren()
				}
			}
		},
	}
}

// reapChildren waits for every child that has ended.
func reapChildren() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}
