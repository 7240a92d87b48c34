package migrate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// prober asks for services in all clusters, all the time.
type prober struct {
	mu       sync.Mutex
	allowed  map[types.NamespacedName][]string // addresses that an answer may have, by service
	failures []string
	asked    map[string]int // by cluster and phase, and without an API server
}

// probe asks until the test ends. Answers must have addresses, and only allowed ones.
func probe(t *testing.T, f *fleetOfBoth, allowed map[types.NamespacedName][]string) *prober {
	t.Helper()
	p := &prober{allowed: allowed, asked: map[string]int{}}
	services := slices.SortedFunc(maps.Keys(allowed), func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, c := range f.clusters {
		running.Go(func() {
			var known knowledge
			for ctx.Err() == nil {
				if err := p.ask(ctx, c, services, &known); err != nil && ctx.Err() == nil {
					p.fail(fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), c.ID, err))
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

func (p *prober) fail(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, text)
}

// check fails the test if an answer was wrong.
func (p *prober) check(t *testing.T, when string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failures) > 0 {
		t.Fatalf("%s: %d wrong answers, first %s; asked %v", when, len(p.failures), p.failures[0], p.asked)
	}
}

// knowledge is what the prober knows of a cluster from its last turn.
type knowledge struct {
	asked servers
	// returned is true from the return of Lighthouse until the cluster is in shadow again.
	returned bool
}

// ask asks the server to which the cluster's DNS forwards. CoreDNS loads a changed Corefile only
// after a while, so both servers must answer while the cluster is switched. A cluster that has
// returned from finish used Seamark all the time: Lighthouse need not answer there before the
// Corefile changes. Without an API server nothing changes, and the same servers answer.
func (p *prober) ask(ctx context.Context, c *cluster, services []types.NamespacedName, known *knowledge) error {
	_, outages := c.read()
	asked, err := whom(ctx, c)
	if _, now := c.read(); err != nil && now == outages && outages%2 == 0 {
		return err
	} else if err != nil {
		asked = known.asked
	} else {
		known.asked = asked
		c.change(&c.reads)
	}
	switch v1alpha1.MigrationPhase(asked.phase) {
	case v1alpha1.MigrationReturning:
		known.returned = true
	case v1alpha1.MigrationShadow:
		known.returned = false
	default:
	}
	both := asked.phase == string(v1alpha1.MigrationSwitched) && (!known.returned || asked.lighthouse)
	for _, service := range services {
		if asked.lighthouse || both {
			got, found, err := c.Resolve(ctx, service.Namespace, service.Name)
			if p.wrong(service, got, found, err) != nil { // it may not have read everything yet; a real CoreDNS asks it later
				got, found, err = c.ResolveLater(ctx, service.Namespace, service.Name)
			}
			if err := p.judge(ctx, c, asked, service, got, found, err); err != nil {
				return fmt.Errorf("Lighthouse's server, %+v, %s: %w", asked, service, err)
			}
		}
		if asked.seamark || both {
			got, found, err := c.resolve(service)
			if err := p.judge(ctx, c, asked, service, got, found, err); err != nil {
				return fmt.Errorf("seamark-dns, %+v, %s: %w", asked, service, err)
			}
		}
	}
	p.count(c, asked, err != nil)
	return nil
}

// servers are the blocks of a cluster's Corefile, and the phase.
type servers struct {
	phase               string
	seamark, lighthouse bool
}

// whom returns which server the cluster's DNS asks.
func whom(ctx context.Context, c *cluster) (s servers, err error) {
	property := &aboutv1beta1.ClusterProperty{}
	err = c.client.Get(ctx, types.NamespacedName{Name: v1alpha1.PropertyMigration}, property)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return s, err
	}
	config := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: "coredns"}, config); err != nil {
		return s, err
	}
	text := config.Data["Corefile"]
	s = servers{property.Spec.Value, strings.Contains(text, "# BEGIN seamark"), strings.Contains(text, "#lighthouse-start")}
	if s.seamark == s.lighthouse {
		return s, fmt.Errorf("the Corefile has the blocks of both or of neither:\n%s", text)
	}
	return s, nil
}

// judge returns what is wrong with an answer. It counts only if that server was to be asked all the
// time.
func (p *prober) judge(
	ctx context.Context, c *cluster, asked servers, service types.NamespacedName, got []string, found bool, err error,
) error {
	if err = p.wrong(service, got, found, err); err == nil {
		return nil
	}
	now, readErr := whom(ctx, c)
	if _, outages := c.read(); readErr != nil && outages%2 == 1 {
		now, readErr = asked, nil // nothing can have changed
	}
	if readErr == nil && now == asked {
		return err
	}
	return nil
}

// wrong returns what is wrong with an answer.
func (p *prober) wrong(service types.NamespacedName, got []string, found bool, err error) error {
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("NXDOMAIN")
	case len(got) == 0:
		return fmt.Errorf("an answer without addresses")
	case !p.allows(service, got):
		return fmt.Errorf("answered %v", got)
	}
	return nil
}

func (p *prober) allows(service types.NamespacedName, got []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(got, func(address string) bool { return !slices.Contains(p.allowed[service], address) })
}

// allow accepts one more address of a service.
func (p *prober) allow(service types.NamespacedName, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed[service] = append(p.allowed[service], address)
}

// counts returns how often each cluster was asked in each phase, and without an API server.
func (p *prober) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.asked)
}

func (p *prober) count(c *cluster, asked servers, apiServerAway bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[c.ID+" "+asked.phase]++
	if apiServerAway {
		p.asked[c.ID+" without its API server"]++
	}
}

// resolve asks the replicas of seamark-dns in turn, until one answers: CoreDNS, which forwards to
// them, and resolvers in pods ask again too. On a busy machine one replica may be slow while the
// other one is being restarted.
func (c *cluster) resolve(service types.NamespacedName) (addresses []string, found bool, err error) {
	servers := c.servers()
	for i := range 3 * len(servers) {
		if addresses, found, err = resolve(servers[i%len(servers)].Address, service); err == nil {
			break
		}
	}
	return addresses, found, err
}

// resolve asks a DNS server for the addresses of a service.
func resolve(server string, service types.NamespacedName) (addresses []string, found bool, err error) {
	query := new(dns.Msg)
	query.SetQuestion(fmt.Sprintf("%s.%s.svc.clusterset.local.", service.Name, service.Namespace), dns.TypeA)
	reply, _, err := (&dns.Client{Timeout: 2 * time.Second}).Exchange(query, server)
	if err != nil {
		return nil, false, err
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return nil, false, fmt.Errorf("answered %s", dns.RcodeToString[reply.Rcode])
	}
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			addresses = append(addresses, a.A.String())
		}
	}
	return addresses, reply.Rcode == dns.RcodeSuccess, nil
}
