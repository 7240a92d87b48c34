package main

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/bench/report"
)

func TestTraceNamesEachChange(t *testing.T) {
	traced := newTrace()
	start := time.Now()
	traced.begin("web", "export")
	traced.sent("web", "export", start)
	si := func(service string, generation int64, ips ...string) *mcsv1beta1.ServiceImport {
		return &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Name: service, Generation: generation}, Spec: mcsv1beta1.ServiceImportSpec{IPs: ips},
		}
	}
	for i, event := range []watch.Event{
		{Type: watch.Added, Object: si("other", 1)}, // is not traced
		{Type: watch.Added, Object: si("web", 1)},
		{Type: watch.Modified, Object: si("web", 2, "243.0.0.1")},
		{Type: watch.Modified, Object: si("web", 2, "243.0.0.1")},
		{Type: watch.Modified, Object: si("web", 2, "243.0.0.1")},
	} {
		traced.record("importer", event, start.Add(time.Duration(i)*time.Millisecond))
	}
	traced.begin("web", "change") // its rows follow
	traced.record("importer", watch.Event{Type: watch.Modified, Object: si("web", 3)}, start.Add(15*time.Millisecond))
	traced.sent("web", "change", start.Add(10*time.Millisecond))
	r := &report.Report{}
	traced.report(r, 2)
	want := []string{
		"change: importer: ServiceImport changed, in 1 of 2",
		"export: importer: ServiceImport created, in 1 of 2",
		"export: importer: ServiceImport with its clusterset IP changed, in 1 of 2",
		"export: importer: ServiceImport with its clusterset IP status written, in 1 of 2",
		"export: importer: ServiceImport with its clusterset IP status written (2), in 1 of 2",
	}
	if len(r.Rows) != len(want) {
		t.Fatalf("%+v", r.Rows)
	}
	for i, row := range r.Rows {
		after := float64(i)
		if i == 0 {
			after = 5
		}
		if row.Name != want[i] || row.Value != after {
			t.Errorf("row %d: %q after %g ms, want %q", i, row.Name, row.Value, want[i])
		}
	}
}
