package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// state is what the importing cluster has of a service.
type state struct {
	imported  *mcsv1beta1.ServiceImport
	addresses []string
}

// awaitFunc waits until the state is as wanted, and records the time since start for a step.
type awaitFunc func(step string, start time.Time, wanted func(state) bool) error

// watch watches a service in the importing cluster until stop is called.
func (r *run) watch(ctx context.Context, name string) (await awaitFunc, stop func(), err error) {
	imports, err := r.to.Watch(ctx, &mcsv1beta1.ServiceImportList{}, client.InNamespace(r.namespace))
	if err != nil {
		return nil, nil, fmt.Errorf("watch ServiceImports of the importing cluster: %w (is it a member of a clusterset?)", err)
	}
	slices, err := r.to.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(r.namespace),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
	if err != nil {
		imports.Stop()
		return nil, nil, fmt.Errorf("watch EndpointSlices of the importing cluster: %w", err)
	}
	var current state
	await = func(step string, start time.Time, wanted func(state) bool) error {
		timeout := time.NewTimer(r.Timeout)
		defer timeout.Stop()
		for !wanted(current) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timeout.C:
				return fmt.Errorf("%s: not within %s; see `seamark explain %s -n %s` and `seamark doctor`", step, r.Timeout, name, r.namespace)
			case event, open := <-imports.ResultChan():
				if !open {
					return errors.New("the importing cluster ended the watch: try again")
				}
				current.updateImport(event, name)
			case event, open := <-slices.ResultChan():
				if !open {
					return errors.New("the importing cluster ended the watch: try again")
				}
				current.updateSlice(event)
			}
		}
		r.times[step] = append(r.times[step], time.Since(start))
		return nil
	}
	return await, func() { imports.Stop(); slices.Stop() }, nil
}

func (s *state) updateImport(event watch.Event, name string) {
	si, ok := event.Object.(*mcsv1beta1.ServiceImport)
	switch {
	case !ok || si.Name != name:
	case event.Type == watch.Deleted:
		s.imported = nil
	default:
		s.imported = si
	}
}

func (s *state) updateSlice(event watch.Event) {
	slice, ok := event.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	s.addresses = nil
	if event.Type == watch.Deleted {
		return
	}
	for i := range slice.Endpoints {
		s.addresses = append(s.addresses, slice.Endpoints[i].Addresses...)
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
