package lighthouse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// dnsServer is what Lighthouse's DNS server of a cluster has read. It has a cache of its own, and
// tests ask very often.
type dnsServer struct {
	mu     sync.Mutex
	reader client.Reader // nil while it does not run
	stop   func()
}

// startDNS starts the DNS server, unless it runs. It returns when the server has read everything.
func (a *Agent) startDNS(ctx context.Context) error {
	if a.dns.running() != nil {
		return nil
	}
	reader, err := cache.New(a.CP.Config(), cache.Options{
		Scheme: a.Client.Scheme(), Mapper: a.Client.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&discoveryv1.EndpointSlice{}: {Label: labels.SelectorFromSet(labels.Set(Slices()))}},
	})
	if err != nil {
		return fmt.Errorf("create a cache for Lighthouse's DNS server: %w", err)
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = reader.Start(running) }() // it ends with running
	stop := func() { cancel(); <-ended }
	ctx, giveUp := context.WithTimeout(ctx, time.Minute) // the API server may be away; the next attempt is as good
	defer giveUp()
	for _, kind := range []client.Object{&mcsv1alpha1.ServiceImport{}, &discoveryv1.EndpointSlice{}} {
		if _, err := reader.GetInformer(ctx, kind); err != nil {
			stop()
			return fmt.Errorf("read what Lighthouse's DNS server reads: %w", err)
		}
	}
	a.dns.mu.Lock()
	defer a.dns.mu.Unlock()
	a.dns.reader, a.dns.stop = reader, stop
	return nil
}

// stopDNS stops the DNS server, if it runs.
func (a *Agent) stopDNS() {
	a.dns.mu.Lock()
	defer a.dns.mu.Unlock()
	if a.dns.reader != nil {
		a.dns.stop()
		a.dns.reader = nil
	}
}

func (s *dnsServer) running() client.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader
}

// Resolve returns the addresses that Lighthouse's DNS server may answer with for a service of a
// cluster: its clusterset IP, or else the ready endpoints of Lighthouse's slices. The real server
// chooses one cluster of them, its own first. found is false for NXDOMAIN.
func (a *Agent) Resolve(ctx context.Context, namespace, name string) (addresses []string, found bool, err error) {
	reader := a.dns.running()
	if reader == nil {
		return nil, false, errors.New("the DNS server of Lighthouse does not run")
	}
	return resolve(ctx, reader, namespace, name)
}

// ResolveLater is as Resolve, when the server has read what the API server has now.
func (a *Agent) ResolveLater(ctx context.Context, namespace, name string) (addresses []string, found bool, err error) {
	return resolve(ctx, a.Client, namespace, name)
}

func resolve(ctx context.Context, reader client.Reader, namespace, name string) (addresses []string, found bool, err error) {
	si := &mcsv1alpha1.ServiceImport{}
	err = reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, si)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read ServiceImport %s/%s: %w", namespace, name, err)
	}
	if len(si.Spec.IPs) > 0 {
		return si.Spec.IPs, true, nil
	}
	selector := Slices()
	selector[mcsv1alpha1.LabelServiceName] = name
	list := &discoveryv1.EndpointSliceList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), selector); err != nil {
		return nil, true, fmt.Errorf("list Lighthouse's slices of %s/%s: %w", namespace, name, err)
	}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, true, nil
}
