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
	traced := &trace{starts: map[string]time.Time{}, generations: map[string]int64{}, seen: map[string]int{}, moments: map[string][]time.Duration{}}
	traced.begin("web")
	start := traced.starts["web"]
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
	r := &report.Report{}
	traced.report(r, 2)
	want := []string{
		"importer: ServiceImport created, in 1 of 2 exports",
		"importer: ServiceImport with its clusterset IP changed, in 1 of 2 exports",
		"importer: ServiceImport with its clusterset IP status written, in 1 of 2 exports",
		"importer: ServiceImport with its clusterset IP status written (2), in 1 of 2 exports",
	}
	if len(r.Rows) != len(want) {
		t.Fatalf("%+v", r.Rows)
	}
	for i, row := range r.Rows {
		if row.Name != want[i] || row.Value != float64(i+1) {
			t.Errorf("row %d: %q after %g ms, want %q", i, row.Name, row.Value, want[i])
		}
	}
}
