package lighthouse

import (
	"context"
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// newReader returns a cache of what Lighthouse's DNS server reads. The server has one, too; and
// tests ask very often.
func newReader(t testing.TB, config *rest.Config, c client.Client) client.Reader {
	t.Helper()
	reader, err := cache.New(config, cache.Options{
		Scheme: c.Scheme(), Mapper: c.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&discoveryv1.EndpointSlice{}: {Label: labels.SelectorFromSet(labels.Set(Slices()))}},
	})
	if err != nil {
		t.Fatalf("create a cache for Lighthouse's DNS server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = reader.Start(ctx) }() // it ends with ctx
	t.Cleanup(func() { cancel(); <-ended })
	for _, kind := range []client.Object{&mcsv1alpha1.ServiceImport{}, &discoveryv1.EndpointSlice{}} {
		if _, err := reader.GetInformer(ctx, kind); err != nil {
			t.Fatalf("read what Lighthouse's DNS server reads: %v", err)
		}
	}
	return reader
}

// Resolve returns the addresses that Lighthouse's DNS server may answer with for a service of a
// cluster: its clusterset IP, or else the ready endpoints of Lighthouse's slices. The real server
// chooses one cluster of them, its own first. found is false for NXDOMAIN.
func (a *Agent) Resolve(ctx context.Context, namespace, name string) (addresses []string, found bool, err error) {
	return resolve(ctx, a.reader, namespace, name)
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
