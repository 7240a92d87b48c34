package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// seen is what the importing cluster shows of a service.
type seen struct {
	imported  *mcsv1beta1.ServiceImport
	addresses []string
}

// watch follows a service in the importing cluster. The function it returns waits until something is seen and notes the time since start.
func (r *run) watch(ctx context.Context, name string) (see func(what string, start time.Time, done func(seen) bool) error, stop func(), err error) {
	imports, err := r.to.Watch(ctx, &mcsv1beta1.ServiceImportList{}, client.InNamespace(r.namespace))
	if err != nil {
		return nil, nil, fmt.Errorf("watch ServiceImports of the importing cluster: %w (is it a member of a clusterset?)", err)
	}
	slices, err := r.to.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(r.namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
	if err != nil {
		imports.Stop()
		return nil, nil, fmt.Errorf("watch EndpointSlices of the importing cluster: %w", err)
	}
	var now seen
	see = func(what string, start time.Time, done func(seen) bool) error {
		timeout := time.NewTimer(r.Timeout)
		defer timeout.Stop()
		for !done(now) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timeout.C:
				return fmt.Errorf("%s: not within %s; see `seamark explain %s -n %s` and `seamark doctor`", what, r.Timeout, name, r.namespace)
			case event, open := <-imports.ResultChan():
				if !open {
					return errors.New("the importing cluster ended the watch: try again")
				}
				now.noteImport(event, name)
			case event, open := <-slices.ResultChan():
				if !open {
					return errors.New("the importing cluster ended the watch: try again")
				}
				now.noteSlice(event)
			}
		}
		r.times[what] = append(r.times[what], time.Since(start))
		return nil
	}
	return see, func() { imports.Stop(); slices.Stop() }, nil
}

func (s *seen) noteImport(event watch.Event, name string) {
	si, ok := event.Object.(*mcsv1beta1.ServiceImport)
	switch {
	case !ok || si.Name != name:
	case event.Type == watch.Deleted:
		s.imported = nil
	default:
		s.imported = si
	}
}

func (s *seen) noteSlice(event watch.Event) {
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

// nameEvery is how often a name that is not answered yet is asked for.
const nameEvery = 2 * time.Millisecond

// named waits until the DNS server answers the name of a service.
func (r *run) named(ctx context.Context, name string, start time.Time) error {
	for {
		if ok, err := r.ask(ctx, name); err != nil {
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
		case <-time.After(nameEvery):
		}
	}
}

func (r *run) ask(ctx context.Context, name string) (bool, error) {
	question := new(dns.Msg)
	question.SetQuestion(name+"."+r.namespace+".svc.clusterset.local.", dns.TypeA)
	answer, _, err := (&dns.Client{}).ExchangeContext(ctx, question, r.DNS)
	if err != nil {
		return false, fmt.Errorf("ask the DNS server %s: %w", r.DNS, err)
	}
	return len(answer.Answer) > 0, nil
}

// queries asks one question after another for a second.
func (r *run) queries(ctx context.Context) (float64, error) {
	count, start := 0, time.Now()
	for time.Since(start) < time.Second {
		if _, err := r.ask(ctx, "none"); err != nil {
			return 0, err
		}
		count++
	}
	return float64(count) / time.Since(start).Seconds(), nil
}
