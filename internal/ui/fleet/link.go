package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/internal/ui/watch"
)

// Times of a connection.
const (
	// pingEvery and pingTimeout bound the time until an API server that does not answer is noticed to
	// less than five seconds: a watch alone would not show that for half a minute.
	pingEvery   = 2 * time.Second
	pingTimeout = 2500 * time.Millisecond
	// requestTimeout is for all other requests, and syncTimeout for the first lists of all kinds.
	requestTimeout = 5 * time.Second
	syncTimeout    = 2 * time.Minute
	// identifyEvery is how often the membership is read again, whose token agents renew.
	identifyEvery = time.Minute
	retryEvery    = time.Second
	// tokenAge is how long a token for proxies is used. It lives for ten minutes.
	tokenAge = 5 * time.Minute
)

var errConnecting = errors.New("it was not read yet")

// link is the connection to one cluster.
type link struct {
	fleet  *Fleet
	target Target
	// refresh asks for the membership to be read again.
	refresh chan struct{}

	mu       sync.Mutex
	state    *survey.Cluster
	lastSeen time.Time
	version  string
	// tried reports whether the first attempt to read it has ended.
	tried bool
	token struct {
		text string
		at   time.Time
	}
}

func newLink(f *Fleet, target Target) *link {
	return &link{fleet: f, target: target, refresh: make(chan struct{}, 1), state: &survey.Cluster{
		Context: target.Context, Connection: survey.Connection{Config: target.Config}, Problem: errConnecting,
	}}
}

// cluster returns the cluster as it was read last. Its Problem says why it cannot be read now.
func (l *link) cluster() *survey.Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *link) set(c *survey.Cluster, change func()) {
	l.mu.Lock()
	l.state, l.tried = c, true
	if change != nil {
		change()
	}
	l.mu.Unlock()
	l.fleet.note(func(p *pending) { p.all, p.common = true, true })
}

func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		failed := *l.cluster()
		if failed.Problem == nil || failed.Problem.Error() != err.Error() {
			failed.Problem = err
			l.set(&failed, nil)
		}
		pause(ctx, retryEvery)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// identify reads which cluster it is.
func (l *link) identify(ctx context.Context) *survey.Cluster {
	config := watch.Guard(l.target.Config, l.fleet.Questions)
	config.Timeout = requestTimeout
	c := &survey.Cluster{Context: l.target.Context, Connection: survey.Connection{Config: config}, Guard: l.guardBroker, ProxyToken: l.proxyToken}
	survey.Identify(ctx, []*survey.Cluster{c})
	return c
}

// session reads and follows the cluster until it does not answer any more, and returns why.
func (l *link) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := l.identify(ctx)
	if c.Problem != nil {
		return c.Problem
	}
	cache := watch.New(c.Client, l.fleet.scheme, func(obj client.Object) { l.changed(c.Name(), obj) })
	config := watch.Guard(l.target.Config, l.fleet.Questions)
	config.Timeout = 0 // it would end watches
	done, err := cache.Feed(ctx, config, memberKinds())
	if err != nil {
		return err
	}
	defer done.Wait()
	defer cancel()
	if err := l.waitSynced(ctx, c, cache); err != nil {
		return err
	}
	version := ""
	if v, err := versionOf(c.Config); err == nil {
		version = v
	}
	c.Client = cache
	l.set(c, func() { l.version, l.lastSeen = version, time.Now() })
	return l.follow(ctx, cache)
}

// waitSynced waits for the first lists, as long as the API server answers.
func (l *link) waitSynced(ctx context.Context, c *survey.Cluster, cache *watch.Cache) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	synced := make(chan error, 1)
	go func() { synced <- cache.WaitSynced(ctx) }()
	for {
		select {
		case err := <-synced:
			return err
		case <-time.After(pingEvery):
			if err := ping(ctx, c.Config); err != nil {
				return err
			}
		}
	}
}

// follow returns when the cluster does not answer any more.
func (l *link) follow(ctx context.Context, cache *watch.Cache) error {
	identify := time.NewTicker(identifyEvery)
	defer identify.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pingEvery):
			if err := ping(ctx, l.cluster().Config); err != nil {
				return err
			}
			l.mu.Lock()
			l.lastSeen = time.Now()
			l.mu.Unlock()
			continue
		case <-identify.C:
		case <-l.refresh:
		}
		c := l.identify(ctx)
		if c.Problem != nil {
			return c.Problem
		}
		c.Client = cache
		if old := l.cluster(); old.ID != c.ID || old.ClusterSet != c.ClusterSet || old.Removed != c.Removed ||
			old.MembershipProblem != c.MembershipProblem || !reflect.DeepEqual(old.Membership, c.Membership) {
			l.set(c, nil)
		}
	}
}

// ping returns why an API server does not answer.
func ping(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if err := d.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return errors.New(objects.ErrorText(err))
	}
	return nil
}

func versionOf(config *rest.Config) (string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	v, err := d.ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

// guardBroker returns the configuration with which the broker is read as this member: it can change
// nothing, and has the token that the membership has now.
func (l *link) guardBroker(config *rest.Config) *rest.Config {
	guarded := watch.Guard(config, watch.Questions{})
	fallback := guarded.BearerToken
	guarded.BearerToken = ""
	guarded.Timeout = requestTimeout
	guarded.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return authorized{next, func() string {
			if m := l.cluster().Membership; m != nil && m.Token != "" {
				return m.Token
			}
			return fallback
		}}
	})
	return guarded
}

// authorized sends requests with the token of the moment.
type authorized struct {
	next  http.RoundTripper
	token func() string
}

// RoundTrip sends a request with the token.
func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+a.token())
	return a.next.RoundTrip(req)
}

// proxyToken returns the token with which proxies are asked.
func (l *link) proxyToken(ctx context.Context) (string, error) {
	if l.fleet.ProxyToken != nil {
		return l.fleet.ProxyToken(ctx)
	}
	if !l.fleet.Questions.Token {
		return "", errors.New("the page may not request a token for proxies")
	}
	l.mu.Lock()
	text, at, config := l.token.text, l.token.at, l.state.Config
	l.mu.Unlock()
	if text != "" && time.Since(at) < tokenAge {
		return text, nil
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	text, err = survey.NewProxyToken(ctx, clients)
	if err != nil {
		return "", fmt.Errorf("ask proxies: %w", err)
	}
	l.mu.Lock()
	l.token.text, l.token.at = text, time.Now()
	l.mu.Unlock()
	return text, nil
}

// memberKinds are what is watched of a member.
func memberKinds() []watch.Kind {
	own := objects.AgentNamespace
	return []watch.Kind{
		{Object: &mcsv1beta1.ServiceExport{}}, {Object: &mcsv1beta1.ServiceImport{}},
		{Object: &corev1.Service{}}, {Object: &discoveryv1.EndpointSlice{}}, {Object: &corev1.Namespace{}},
		{Object: &aboutv1beta1.ClusterProperty{}}, {Object: &networkingv1.ServiceCIDR{}},
		{Object: &appsv1.Deployment{}, Namespace: own}, {Object: &appsv1.DaemonSet{}, Namespace: own}, {Object: &corev1.Pod{}, Namespace: own},
		{Object: &corev1.ConfigMap{}, Namespace: metav1.NamespaceSystem, Field: fields.OneTermEqualSelector("metadata.name", "coredns")},
		{Object: &corev1.Event{}, Field: fields.OneTermEqualSelector("reportingComponent", "seamark-agent")},
	}
}

// changed notes what an object of the cluster with an id means for services.
func (l *link) changed(id string, obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	service := func(key types.NamespacedName) {
		l.fleet.note(func(p *pending) { p.services[key] = true })
	}
	switch typed := obj.(type) {
	case *corev1.Event:
		if entry, ok := state.FromEvent(id, typed, time.Now().Add(-time.Hour)); ok {
			l.fleet.note(func(p *pending) { p.entries = append(p.entries, entry) })
		}
	case *mcsv1beta1.ServiceExport, *mcsv1beta1.ServiceImport:
		service(key)
	case *corev1.Service:
		service(key)
		if from := typed.Labels[mcsv1beta1.LabelServiceName]; from != "" { // also of a Service that has lost other labels
			service(types.NamespacedName{Namespace: key.Namespace, Name: from})
		}
	case *discoveryv1.EndpointSlice:
		for _, label := range []string{discoveryv1.LabelServiceName, mcsv1beta1.LabelServiceName} {
			if name := typed.Labels[label]; name != "" {
				service(types.NamespacedName{Namespace: key.Namespace, Name: name})
			}
		}
	case *corev1.Namespace:
		l.fleet.note(func(p *pending) { p.namespaces[key.Name] = true })
	case *corev1.Pod: // they say where to ask, and nothing about services
	case *aboutv1beta1.ClusterProperty:
		l.fleet.note(func(p *pending) { p.common = true })
		select {
		case l.refresh <- struct{}{}:
		default:
		}
	default:
		l.fleet.note(func(p *pending) { p.common = true })
	}
}
