// Command parts builds the programs of real clusters into the cache, shows progress, and prints
// their paths:
//
//	go run ./build/parts kube        # the kube binary: all parts of Kubernetes, kubectl and etcd
//	go run ./build/parts node        # the folder with containerd, its shim, ctr and the CNI plugins
//	go run ./build/parts lighthouse  # the folder with Submariner's programs, for tests
//	go run ./build/parts all         # all of them, a line each
//
// Parts that are in the cache are not built again. Tests and the sandbox build missing parts
// themselves; this command shows the progress that `go test` hides.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

func main() {
	if len(os.Args) != 2 || !slices.Contains([]string{"kube", "node", "lighthouse", "all"}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: go run ./build/parts kube|node|lighthouse|all")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, which string) error {
	parts := []struct {
		name string
		find func(context.Context, io.Writer) (string, error)
	}{{"kube", kubeparts.Kube}, {"node", kubeparts.Node}, {"lighthouse", kubeparts.Lighthouse}}
	for _, part := range parts {
		if which != "all" && which != part.name {
			continue
		}
		path, err := part.find(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
