// Package bench measures how long a change takes from one cluster of a user to another.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
)

// Options are what is measured.
type Options struct {
	// From exports, To imports.
	From, To *rest.Config
	Rounds   int
	// Timeout bounds each step.
	Timeout time.Duration
	// DNS is the address of a DNS server of the importing cluster; empty to leave DNS out. Zone is the
	// zone of the clusterset's names there.
	DNS, Zone string
	// Progress gets a line for each step.
	Progress func(string)
}

// Result is what was measured.
type Result struct {
	Rounds   int       `json:"rounds"`
	Measured []Measure `json:"measured"`
	// QueriesPerSecond is how many answers a client gets that sends one query at a time; zero without
	// DNS.
	QueriesPerSecond float64 `json:"queriesPerSecond,omitempty"`
}

// Measure is how long a step took, over all rounds.
type Measure struct {
	Name string        `json:"name"`
	P50  time.Duration `json:"p50Nanoseconds"`
	P99  time.Duration `json:"p99Nanoseconds"`
	Max  time.Duration `json:"maxNanoseconds"`
}

// The steps that are measured, in the order of the result.
const (
	toUsable  = "export → usable"
	toObjects = "of that: export → ServiceImport and slice"
	toIP      = "of that: export → clusterset IP"
	toName    = "export → name resolves"
	toChange  = "endpoint change → slice"
	toGone    = "unexport → gone"
)

var steps = []string{toUsable, toObjects, toIP, toName, toChange, toGone}

type run struct {
	Options
	from, to  client.WithWatch
	namespace string
	times     map[string][]time.Duration
}

// Run measures. It deletes what it created, also if it fails or ctx ends.
func Run(ctx context.Context, o Options) (result Result, err error) {
	r := &run{Options: o, namespace: "mcs-bench-" + rand.String(6), times: map[string][]time.Duration{}}
	if r.from, err = newClient(o.From); err != nil {
		return Result{}, err
	}
	if r.to, err = newClient(o.To); err != nil {
		return Result{}, err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Timeout)
		defer cancel()
		for _, c := range []client.Client{r.from, r.to} {
			deleteErr := c.Delete(cleanup, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})
			err = errors.Join(err, client.IgnoreNotFound(deleteErr))
		}
	}()
	o.Progress(fmt.Sprintf("measuring in namespace %s of both clusters, which is deleted at the end", r.namespace))
	for _, c := range []client.Client{r.from, r.to} {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}); err != nil {
			return Result{}, fmt.Errorf("create namespace %s: %w", r.namespace, err)
		}
	}
	for i := range o.Rounds {
		if err := r.round(ctx, fmt.Sprintf("bench-%d", i)); err != nil {
			return Result{}, fmt.Errorf("round %d of %d: %w", i+1, o.Rounds, err)
		}
	}
	result = Result{Rounds: o.Rounds}
	for _, name := range steps {
		if times := r.times[name]; len(times) > 0 {
			result.Measured = append(result.Measured, summarize(name, times))
		}
	}
	if o.DNS != "" {
		result.QueriesPerSecond, err = r.queries(ctx)
	}
	return result, err
}

func newClient(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: brokeradmin.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster at %s: %w", config.Host, err)
	}
	return c, nil
}

// round exports one service, changes its endpoint, and unexports it.
func (r *run) round(ctx context.Context, name string) error {
	service, slice := r.objects(name)
	for _, obj := range []client.Object{service, slice} {
		if err := r.from.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s: %w", obj, name, err)
		}
	}
	await, stop, err := r.watch(ctx, name)
	if err != nil {
		return err
	}
	defer stop()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	start := time.Now()
	if err := r.from.Create(ctx, export); err != nil {
		return fmt.Errorf("create ServiceExport %s: %w (is this cluster a member of a clusterset?)", name, err)
	}
	if err := r.awaitUsable(await, start); err != nil {
		return err
	}
	if r.DNS != "" {
		if err := r.awaitName(ctx, name, start); err != nil {
			return err
		}
	}
	const changed = "192.0.2.2"
	slice.Endpoints[0].Addresses = []string{changed}
	start = time.Now()
	if err := r.from.Update(ctx, slice); err != nil {
		return fmt.Errorf("update EndpointSlice %s: %w", name, err)
	}
	if err := r.record(await, toChange, start, func(i *Imported) bool { return i.HasEndpoint(changed) }); err != nil {
		return err
	}
	start = time.Now()
	if err := r.from.Delete(ctx, export); err != nil {
		return fmt.Errorf("delete ServiceExport %s: %w", name, err)
	}
	return r.record(await, toGone, start, (*Imported).Gone)
}

// awaitUsable waits until a service is usable and records when it was, and when it had each part of
// that.
func (r *run) awaitUsable(await awaitFunc, start time.Time) error {
	parts := map[string]func(*Imported) bool{toObjects: (*Imported).HasObjects, toIP: (*Imported).HasIP}
	return r.record(await, toUsable, start, func(i *Imported) bool {
		for step, has := range parts {
			if has(i) {
				r.times[step] = append(r.times[step], time.Since(start))
				delete(parts, step)
			}
		}
		return i.Usable()
	})
}

// record waits until a service is as wanted and records the time since start.
func (r *run) record(await awaitFunc, step string, start time.Time, wanted func(*Imported) bool) error {
	at, err := await(step, wanted)
	if err == nil {
		r.times[step] = append(r.times[step], at.Sub(start))
	}
	return err
}

// objects returns a Service without pods, and a slice with an endpoint from a range for
// documentation (RFC 5737), to which nothing is ever sent.
func (r *run) objects(name string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: r.namespace, Name: name}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "bench.seamark.dev"}
	return service, &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
}

func summarize(name string, times []time.Duration) Measure {
	slices.Sort(times)
	at := func(share float64) time.Duration { return times[min(len(times)-1, int(share*float64(len(times))))] }
	return Measure{Name: name, P50: at(0.5), P99: at(0.99), Max: times[len(times)-1]}
}
