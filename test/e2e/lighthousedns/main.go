// Command lighthousedns stands in for Lighthouse's DNS server, lighthouse-coredns, whose module is
// not published. It answers from the same objects and by the same rules, as far as clients of a
// move depend on them:
//
//   - A ServiceImport with an address: that address.
//   - A headless service: the ready endpoints of all clusters, of one cluster, or of one host.
//   - Any other service: the ClusterIP of one cluster, its own if that is ready, else the next in
//     turn.
//
// It takes all clusters for connected, because it does not read the state of gateways, and answers
// no SRV queries. Submariner's operator deploys it: it accepts the arguments and the environment
// that the operator gives to lighthouse-coredns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

const address = ":53"

func main() {
	flag.String("conf", "", "not used: the Corefile that Submariner's operator writes for lighthouse-coredns")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lighthousedns:", err)
		os.Exit(1)
	}
}

// run serves when it has read all objects, until ctx ends.
func run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard()) // client-go logs what it retries by itself
	cluster := os.Getenv("SUBMARINER_CLUSTERID")
	if cluster == "" {
		return errors.New("set SUBMARINER_CLUSTERID to the id of this cluster")
	}
	objects, err := watch(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	for _, network := range []string{"udp", "tcp"} {
		server := &dns.Server{Addr: address, Net: network, Handler: &handler{cluster: cluster, objects: objects}}
		go func() { failed <- server.ListenAndServe() }()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// watch returns the ServiceImports and the EndpointSlices of Lighthouse, once all have been read.
func watch(ctx context.Context) (client.Reader, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(discoveryv1.AddToScheme(scheme), mcsv1alpha1.Install(scheme)); err != nil {
		return nil, err
	}
	objects, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	for _, kind := range []client.Object{&mcsv1alpha1.ServiceImport{}, &discoveryv1.EndpointSlice{}} {
		if _, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	if !objects.WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the watches ended before all objects were read"), <-ended)
	}
	return objects, nil
}
