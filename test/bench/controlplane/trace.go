package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/bench"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
)

// traceExports exports one service after the other and reports when a watch showed each change of
// an object on each API server, counted from when the ServiceExport was sent. Agents see a change
// at the same time, because they watch the same servers.
func traceExports(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	const prefix = "trace"
	r.Say("trace of %d exports", size.samples)
	if err := e.serve(ctx, prefix, size.samples, 1); err != nil {
		return err
	}
	traced := &trace{starts: map[string]time.Time{}, generations: map[string]int64{}, seen: map[string]int{}, moments: map[string][]time.Duration{}}
	err := withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, _ barePropagator) error {
		if err := e.watchTrace(ctx, traced); err != nil {
			return err
		}
		if err := e.awaitNoRequests(ctx, afterBurst); err != nil {
			return err
		}
		for i := range size.samples {
			name := serviceName(prefix, i)
			traced.begin(name)
			if _, err := agents.export(ctx, name); err != nil {
				return err
			}
			at, err := agents.observer.await(ctx, factUsable(name))
			if err != nil {
				return err
			}
			traced.add(name, "importer: usable", at)
			// Writes that no client waits for belong to the trace, too.
			if err := e.awaitNoRequests(ctx, afterOneService); err != nil {
				return err
			}
		}
		return nil
	})
	traced.report(r, size.samples)
	return err
}

// watchTrace watches all kinds that Seamark reads and writes, on the three API servers.
func (e *environment) watchTrace(ctx context.Context, t *trace) error {
	member := []client.ObjectList{
		&mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{},
	}
	onBroker := []client.ObjectList{&v1alpha1.ExportRecordList{}, &mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}}
	for _, s := range e.servers() {
		lists, namespace := member, benchNamespace
		if s == e.broker {
			lists, namespace = onBroker, objects.DefaultNamespace
		}
		for _, list := range lists {
			watcher, err := s.client.Watch(ctx, list, client.InNamespace(namespace))
			if err != nil {
				return fmt.Errorf("watch %T on the %s: %w", list, s.name, err)
			}
			go func() {
				<-ctx.Done()
				watcher.Stop()
			}()
			go func() {
				for event := range watcher.ResultChan() {
					t.record(s.name, event, time.Now())
				}
			}()
		}
	}
	return nil
}

// trace collects the moments of exports.
type trace struct {
	mu sync.Mutex
	// starts are when each ServiceExport was sent, by service. Others are not traced.
	starts map[string]time.Time
	// generations are those of the objects, and seen is how often each moment was seen, by service.
	generations map[string]int64
	seen        map[string]int
	moments     map[string][]time.Duration
}

func (t *trace) begin(service string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts[service] = time.Now()
}

func (t *trace) record(server string, event watch.Event, at time.Time) {
	obj, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	service := cmp.Or(obj.GetLabels()[mcsv1beta1.LabelServiceName], bench.ServiceOf(obj))
	if export, ok := obj.(*mcsv1beta1.ServiceExport); ok {
		service = export.Name
	}
	t.add(service, fmt.Sprintf("%s: %s %s", server, t.kindOf(obj), t.change(server, event.Type, obj)), at)
}

// kindOf returns the kind of an object, and whether it is an import that has its clusterset IP.
func (t *trace) kindOf(obj client.Object) string {
	kind := fmt.Sprintf("%T", obj)
	kind = kind[strings.LastIndexByte(kind, '.')+1:]
	if si, ok := obj.(*mcsv1beta1.ServiceImport); ok && len(si.Spec.IPs) > 0 {
		kind += " with its clusterset IP"
	}
	return kind
}

// change returns what happened to an object: its generation changes with its spec, not with its
// status. Slices and Services have none.
func (t *trace) change(server string, event watch.EventType, obj client.Object) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := fmt.Sprintf("%s %T %s", server, obj, obj.GetName())
	before, known := t.generations[key]
	t.generations[key] = obj.GetGeneration()
	switch {
	case event == watch.Deleted:
		return "deleted"
	case !known:
		return "created"
	case before == obj.GetGeneration() && before > 0:
		return "status written"
	}
	return "changed"
}

// add adds a moment of a service that is traced.
func (t *trace) add(service, what string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	start, traced := t.starts[service]
	if !traced {
		return
	}
	key := service + " " + what
	t.seen[key]++
	if n := t.seen[key]; n > 1 {
		what = fmt.Sprintf("%s (%d)", what, n)
	}
	t.moments[what] = append(t.moments[what], at.Sub(start))
}

// report adds a row for each moment, the earliest first.
func (t *trace) report(r *report.Report, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := len(r.Rows)
	for what, times := range t.moments {
		row := report.Row{Name: what, Value: report.Milliseconds(report.Percentile(times, 0.5)), Unit: "ms"}
		if len(times) < samples {
			row.Name += fmt.Sprintf(", in %d of %d exports", len(times), samples)
		}
		r.Add(row)
	}
	slices.SortFunc(r.Rows[first:], func(a, b report.Row) int { return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name)) })
}
