package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
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

// A client that can resolve the name finds endpoints behind its address. In a member with a derived
// Service kube-proxy would refuse connections for a second if it saw the Service before its slices.
func TestEndpointsComeBeforeTheName(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	for _, m := range []*fleet.Member{east, north} {
		slices := watchVersions(t, m, ns, &discoveryv1.EndpointSliceList{}, watch.Added, mcsv1beta1.LabelServiceName)
		services := watchVersions(t, m, ns, &corev1.ServiceList{}, watch.Added, mcsv1beta1.LabelServiceName)
		imports := watchVersions(t, m, ns, &mcsv1beta1.ServiceImportList{}, watch.Added, "")
		for _, name := range []string{"web", "db", "cache"} {
			name += "-" + m.ID
			west.Serve(t, fleet.NewService(ns, name), "10.2.0.1")
			west.Export(t, ns, name)
			m.AwaitImport(t, ns, name, map[string][]string{"west": {"10.2.0.1"}})
			slice, announced := slices.await(t, name), imports.await(t, name)
			if slice > announced {
				t.Errorf("%s: the slice of %s was created after its ServiceImport", m.ID, name)
			}
			if m == east { // the others derive no Service
				if derived := services.await(t, name); slice > derived || derived > announced {
					t.Errorf("%s: slice, Service and ServiceImport of %s were created in versions %d, %d, %d, want them in this order",
						m.ID, name, slice, derived, announced)
				}
			}
		}
	}
}

// A service that has no slices at all is imported too. Its endpoints follow when they come.
func TestServiceWithoutSlicesIsImported(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	svc := fleet.NewService(ns, "web")
	west.Create(t, svc)
	west.Export(t, ns, "web")
	for _, m := range []*fleet.Member{east, west, north} {
		m.AwaitImport(t, ns, "web", nil)
	}
	west.Create(t, fleet.NewSlice(svc, "abc", "10.2.0.1"))
	for _, m := range []*fleet.Member{east, west, north} {
		m.AwaitImport(t, ns, "web", map[string][]string{"west": {"10.2.0.1"}})
	}
}

// A service is withdrawn by its record. Importers that saw its endpoints go first would delete in
// two steps.
func TestTheRecordGoesBeforeTheEndpoints(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	gone := map[string]*versionWatch{
		"record": watchVersions(t, east, objects.DefaultNamespace, &v1alpha1.ExportRecordList{}, watch.Deleted, mcsv1beta1.LabelServiceName),
		"slice":  watchVersions(t, east, objects.DefaultNamespace, &discoveryv1.EndpointSliceList{}, watch.Deleted, mcsv1beta1.LabelServiceName),
	}
	for _, name := range []string{"withdrawn-1", "withdrawn-2", "withdrawn-3"} {
		west.Serve(t, fleet.NewService(ns, name), "10.2.0.1")
		west.Export(t, ns, name)
		west.AwaitExported(t, ns, name)
		west.Unexport(t, ns, name)
		if record, slice := gone["record"].await(t, name), gone["slice"].await(t, name); record > slice {
			t.Errorf("the record of %s was deleted in version %d, after its slice (%d)", name, record, slice)
		}
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
	watchNamespace(t, m, ns, &mcsv1beta1.ServiceImportList{}, func(event watch.Event) {
		if si, ok := event.Object.(*mcsv1beta1.ServiceImport); ok && event.Type != watch.Deleted {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, si)
		}
	})
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

// versionWatch holds the resource version of the first event of a type, for each service.
type versionWatch struct {
	kind string
	mu   sync.Mutex
	seen map[string]int64
}

// watchVersions watches a kind of object. The service of an object is the value of a label, or its
// own name if label is empty.
func watchVersions(t *testing.T, m *fleet.Member, ns string, list client.ObjectList, of watch.EventType, label string) *versionWatch {
	t.Helper()
	w := &versionWatch{kind: fmt.Sprintf("%T", list), seen: map[string]int64{}}
	watchNamespace(t, m, ns, list, func(event watch.Event) {
		obj, ok := event.Object.(client.Object)
		if !ok || event.Type != of {
			return
		}
		service := obj.GetName()
		if label != "" {
			service = obj.GetLabels()[label]
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, known := w.seen[service]; !known {
			w.seen[service], _ = strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
		}
	})
	return w
}

func (w *versionWatch) await(t *testing.T, service string) (version int64) {
	t.Helper()
	harness.Eventually(t, w.kind+" of "+service, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if version = w.seen[service]; version == 0 {
			return errors.New("the watch showed none")
		}
		return nil
	})
	return version
}

func watchNamespace(t *testing.T, m *fleet.Member, ns string, list client.ObjectList, observe func(watch.Event)) {
	t.Helper()
	c, err := client.NewWithWatch(m.CP.DirectConfig(), client.Options{Scheme: harness.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Watch(context.Background(), list, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	go func() {
		for event := range stream.ResultChan() {
			observe(event)
		}
	}()
}
