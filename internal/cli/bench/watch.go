package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// awaitFunc waits until the service is as wanted, and returns when a watch showed that.
type awaitFunc func(step string, wanted func(*Imported) bool) (time.Time, error)

// watch watches a service in the importing cluster until stop is called.
func (r *run) watch(ctx context.Context, name string) (await awaitFunc, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	var watching sync.WaitGroup
	stop = func() {
		cancel()
		watching.Wait()
	}
	for _, list := range []client.ObjectList{&mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}} {
		watcher, err := r.to.Watch(ctx, list, client.InNamespace(r.namespace))
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("watch %T of the importing cluster: %w (is it a member of a clusterset?)", list, err)
		}
		watching.Go(func() { forward(ctx, watcher, events) })
	}
	current := &Imported{}
	return func(step string, wanted func(*Imported) bool) (time.Time, error) {
		timeout := time.NewTimer(r.Timeout)
		defer timeout.Stop()
		for !wanted(current) {
			select {
			case <-ctx.Done():
				return time.Time{}, ctx.Err()
			case <-timeout.C:
				return time.Time{}, fmt.Errorf("%s: not within %s; see `seamark explain %s -n %s` and `seamark doctor`",
					step, r.Timeout, name, r.namespace)
			case event := <-events:
				if event.Type == watch.Error {
					return time.Time{}, errors.New("the importing cluster ended the watch: try again")
				}
				if ServiceOf(event.Object) == name {
					current.Update(event)
				}
			}
		}
		return time.Now(), nil
	}, stop, nil
}

// forward sends the events of a watch until ctx ends, and an error when the watch ends before.
func forward(ctx context.Context, watcher watch.Interface, to chan<- watch.Event) {
	defer watcher.Stop()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return
		case next, open := <-watcher.ResultChan():
			event = next
			if !open {
				event = watch.Event{Type: watch.Error}
			}
		}
		select {
		case <-ctx.Done():
			return
		case to <- event:
		}
		if event.Type == watch.Error {
			return
		}
	}
}

// queryDelay is the delay between queries for a name that does not resolve yet.
const queryDelay = 2 * time.Millisecond

// awaitName waits until the name of a service resolves.
func (r *run) awaitName(ctx context.Context, name string, start time.Time) error {
	for {
		if ok, err := r.resolves(ctx, name); err != nil {
			return err
		} else if ok {
			r.times[toName] = append(r.times[toName], time.Since(start))
			return nil
		}
		if time.Since(start) > r.Timeout {
			return fmt.Errorf("%s: not within %s; is %s the DNS of the importing cluster?", toName, r.Timeout, r.DNS)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(queryDelay):
		}
	}
}

// resolves reports whether the name of a service has an address.
func (r *run) resolves(ctx context.Context, name string) (bool, error) {
	question := new(dns.Msg)
	question.SetQuestion(objects.DNSName(types.NamespacedName{Namespace: r.namespace, Name: name}, r.Zone)+".", dns.TypeA)
	answer, _, err := (&dns.Client{}).ExchangeContext(ctx, question, r.DNS)
	if err != nil {
		return false, fmt.Errorf("query the DNS server %s: %w", r.DNS, err)
	}
	return len(answer.Answer) > 0, nil
}

// queries sends one query after another for a second and returns the rate.
func (r *run) queries(ctx context.Context) (float64, error) {
	count, start := 0, time.Now()
	for time.Since(start) < time.Second {
		if _, err := r.resolves(ctx, "none"); err != nil {
			return 0, err
		}
		count++
	}
	return float64(count) / time.Since(start).Seconds(), nil
}
