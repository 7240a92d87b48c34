package main

import (
	"cmp"
	"context"
	"errors"
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

// traceSteps exports, changes and unexports one service after the other, and reports when a watch
// showed each change of an object on each API server, counted from when the step was sent. Agents
// see a change at the same time, because they watch the same servers. The steps of the bare chain
// are traced in turns with them.
func traceSteps(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	const prefix = "trace"
	r.Say("trace of %d exports, endpoint changes and unexports", size.samples)
	if err := e.serve(ctx, prefix, size.samples, 1); err != nil {
		return err
	}
	traced := newTrace()
	err := withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, bare barePropagator) error {
		if err := e.watchTrace(ctx, traced); err != nil {
			return err
		}
		if err := e.awaitNoRequests(ctx, afterSome); err != nil {
			return err
		}
		for i := range size.samples {
			name := serviceName(prefix, i)
			err := e.withAgentsPaused(func() error {
				return traced.follow(ctx, bare, "bare chain", "bare-"+name, e.newAddress(), func() error { return nil })
			})
			if err != nil {
				return err
			}
			// Writes that no client waits for belong to the trace, too.
			rest := func() error { return e.awaitNoRequests(ctx, afterOneService) }
			if err := errors.Join(rest(), traced.follow(ctx, agents, "Seamark", name, e.newAddress(), rest)); err != nil {
				return err
			}
		}
		return bare.chain.clear(ctx)
	})
	traced.report(r, size.samples)
	return err
}

// follow traces the steps of one service. rest waits after each until nothing more is written.
func (t *trace) follow(ctx context.Context, p propagator, by, service, address string, rest func() error) error {
	for _, step := range []struct {
		name, fact, end string
		send            func() (time.Time, error)
	}{
		{"export", factUsable(service), "usable", func() (time.Time, error) { return p.export(ctx, service) }},
		{"change", factAddress(address), "changed", func() (time.Time, error) { return p.change(ctx, service, address) }},
		{"unexport", factGone(service), "gone", func() (time.Time, error) { return p.unexport(ctx, service) }},
	} {
		name := by + ", " + step.name
		t.begin(service, name)
		start, err := step.send()
		if err != nil {
			return err
		}
		t.sent(service, name, start)
		at, err := p.importObserver().await(ctx, step.fact)
		if err != nil {
			return err
		}
		t.add(service, "importer: "+step.end, at)
		if err := rest(); err != nil {
			return err
		}
	}
	return nil
}

// watchTrace watches all kinds that Seamark reads and writes, on the three API servers.
func (e *environment) watchTrace(ctx context.Context, t *trace) error {
	member := []client.ObjectList{
		&mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{},
	}
	onBroker := []client.ObjectList{&v1alpha1.ExportRecordList{}, &mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}}
	for _, s := range e.servers() {
		lists, namespaces := member, []string{benchNamespace, bareNamespace}
		if s == e.broker {
			lists, namespaces = onBroker, []string{objects.DefaultNamespace}
		}
		for _, namespace := range namespaces {
			for _, list := range lists {
				if err := t.watch(ctx, s, list, namespace); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (t *trace) watch(ctx context.Context, s *server, list client.ObjectList, namespace string) error {
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
	return nil
}

// trace collects the moments of steps.
type trace struct {
	mu sync.Mutex
	// steps are what is traced at present, by service. Other services are not traced.
	steps map[string]string
	// starts are when each step of a service was sent.
	starts map[tracedStep]time.Time
	// generations are those of the objects, and seen is how often each moment was seen.
	generations map[string]int64
	seen        map[string]int
	moments     map[string][]moment
}

type tracedStep struct{ service, name string }

type moment struct {
	step tracedStep
	at   time.Time
}

func newTrace() *trace {
	return &trace{
		steps: map[string]string{}, starts: map[tracedStep]time.Time{},
		generations: map[string]int64{}, seen: map[string]int{}, moments: map[string][]moment{},
	}
}

// begin says that what happens to a service from now on belongs to a step.
func (t *trace) begin(service, step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps[service] = step
}

// sent says when a step was sent.
func (t *trace) sent(service, step string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts[tracedStep{service, step}] = at
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
	step, traced := t.steps[service]
	if !traced {
		return
	}
	what = step + ": " + what
	key := service + " " + what
	t.seen[key]++
	if n := t.seen[key]; n > 1 {
		what = fmt.Sprintf("%s (%d)", what, n)
	}
	t.moments[what] = append(t.moments[what], moment{tracedStep{service, step}, at})
}

// report adds a row for each moment: step by step, the earliest first.
func (t *trace) report(r *report.Report, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := len(r.Rows)
	for what, moments := range t.moments {
		var times []time.Duration
		for _, m := range moments {
			times = append(times, m.at.Sub(t.starts[m.step]))
		}
		row := report.Row{Name: what, Value: report.Milliseconds(report.Percentile(times, 0.5)), Unit: "ms"}
		if len(times) < samples {
			row.Name += fmt.Sprintf(", in %d of %d", len(times), samples)
		}
		r.Add(row)
	}
	stepOf := func(r report.Row) string { step, _, _ := strings.Cut(r.Name, ":"); return step }
	slices.SortFunc(r.Rows[first:], func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(stepOf(a), stepOf(b)), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name))
	})
}
