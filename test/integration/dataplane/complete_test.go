package dataplane_test

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A client that watches ServiceImports can use each one it sees: it never lacks its address, and it
// is not written a second time to get it.
func TestImportsAreWrittenOnceAndComplete(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	var watches []*importWatch
	for _, m := range []*fleet.Member{east, west, north} {
		watches = append(watches, watchImports(t, m, ns))
	}
	for _, name := range []string{"web", "db", "cache"} {
		west.Serve(t, fleet.NewService(ns, name), "10.2.0.1")
		west.Export(t, ns, name)
	}
	for i, m := range []*fleet.Member{east, west, north} {
		for _, name := range []string{"web", "db", "cache"} {
			m.AwaitImport(t, ns, name, map[string][]string{"west": {"10.2.0.1"}})
			waitReachable(t, m, ns, name, 1)
		}
		watches[i].check(t, m.ID, 3)
	}
}

// importWatch collects all that a watch shows of the ServiceImports in a namespace.
type importWatch struct {
	mu   sync.Mutex
	seen []*mcsv1beta1.ServiceImport
}

func watchImports(t *testing.T, m *fleet.Member, ns string) *importWatch {
	t.Helper()
	w := &importWatch{}
	c, err := client.NewWithWatch(m.CP.DirectConfig(), client.Options{Scheme: harness.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Watch(context.Background(), &mcsv1beta1.ServiceImportList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	go func() {
		for event := range stream.ResultChan() {
			if si, ok := event.Object.(*mcsv1beta1.ServiceImport); ok && event.Type != watch.Deleted {
				w.mu.Lock()
				w.seen = append(w.seen, si)
				w.mu.Unlock()
			}
		}
	}()
	return w
}

func (w *importWatch) check(t *testing.T, cluster string, services int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[string]bool{}
	for _, si := range w.seen {
		names[si.Name] = true
		if len(si.Spec.IPs) == 0 || si.Generation != 1 {
			t.Errorf("%s: ServiceImport %s was seen with addresses %v in generation %d", cluster, si.Name, si.Spec.IPs, si.Generation)
		}
	}
	if len(names) != services {
		t.Errorf("%s: the watch showed %d ServiceImports, want %d", cluster, len(names), services)
	}
}
