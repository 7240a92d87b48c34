package dns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

const (
	// startupTimeout is how long a start waits for the API server before it serves failures, and a reload before it is given up.
	startupTimeout = 5 * time.Second
	retryEvery     = time.Second
)

// controller brings what the API server has into the zone.
type controller struct {
	clients
	zone     *zone.Zone
	options  zone.Options
	state    *state
	line     *line
	nodeName string
	fixedID  bool

	ready    atomic.Bool
	allKnown chan struct{} // closed when ready
	imports  gate
	slices   gate
	identity gate

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// gate is closed by whoever opens it first.
type gate struct {
	once sync.Once
	c    chan struct{}
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

func newController(s settings, z *zone.Zone, nodeName string) (*controller, error) {
	api, err := connect(s.kubeconfig, s.context)
	if err != nil {
		return nil, err
	}
	c := &controller{
		clients: api, zone: z, options: s.Options, state: newState(s.locality),
		line: &line{down: map[string]bool{}}, fixedID: s.locality.Cluster != "", allKnown: make(chan struct{}),
	}
	if s.locality.Headless && s.locality.Zone == "" {
		c.nodeName = nodeName
	}
	for _, g := range []*gate{&c.imports, &c.slices, &c.identity} {
		g.c = make(chan struct{})
	}
	if c.fixedID {
		identified(s.locality.Cluster)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func (c *controller) isSynced() bool { return c.ready.Load() }

// begin starts following the API server and waits a while for everything to be known. A first start then goes on and fails every
// query until it is; a reload gives up, so that the server as it was goes on with what it knows.
func (c *controller) begin(restarting bool) error {
	c.running.Go(c.run)
	select {
	case <-c.allKnown:
		return nil
	case <-time.After(startupTimeout):
	}
	if restarting {
		return errors.Join(fmt.Errorf("the API server did not answer within %s: the configuration as it was stays in use", startupTimeout), c.end())
	}
	log.Warningf("not everything is known after %s: queries fail until the API server answers", startupTimeout)
	return nil
}

// end stops everything and waits for it.
func (c *controller) end() error {
	c.cancel()
	c.running.Wait()
	return nil
}

// run follows the imports first: by their kind it is decided which slices are worth keeping.
func (c *controller) run() {
	c.running.Go(c.followImports)
	c.running.Go(c.learnIdentity)
	if !c.wait(&c.imports) {
		return
	}
	c.running.Go(c.followSlices)
	if !c.wait(&c.slices) || !c.wait(&c.identity) {
		return
	}
	c.build()
	c.ready.Store(true)
	setGauge(synced, true)
	log.Infof("everything is known: %s is answered", c.options.Name)
	close(c.allKnown)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.state.wake:
			c.build()
		}
	}
}

func (c *controller) wait(g *gate) bool {
	select {
	case <-g.c:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// build prepares the answers of every service that changed. Services that change several times meanwhile are built once.
func (c *controller) build() {
	for c.ctx.Err() == nil {
		j, found := c.state.next()
		if !found {
			break
		}
		switch {
		case j.missing: // what was answered before stays until they are there
			if j.fetch {
				c.running.Go(func() { c.fetch(j.key) })
			}
		case j.service == nil:
			c.zone.Set(j.key, nil)
			changes.Observe(time.Since(j.since).Seconds())
		default:
			c.zone.Set(j.key, zone.Build(c.options, j.locality, *j.service))
			changes.Observe(time.Since(j.since).Seconds())
		}
	}
	tellCounts(c.zone)
}

// notTheBrokers leaves out what a broker on the same API server holds: aggregates and slices of all clusters, which are no services of this one.
const notTheBrokers = "!" + v1alpha1.LabelServiceNamespace

func (c *controller) followImports() {
	all := c.mcs.ServiceImports(metav1.NamespaceAll)
	lw := listWatch{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = notTheBrokers
			return all.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = notTheBrokers
			return all.Watch(ctx, o)
		},
	}
	follow(c.ctx, "ServiceImports", lw, &mcsv1beta1.ServiceImport{}, &sink{
		reduce: reduceImport,
		set:    func(o any) { c.state.setImport(o.(*importObject)) },
		drop: func(o any) {
			si := o.(*importObject)
			c.state.dropImport(si.Service.Namespace, si.Service.Name)
		},
		replaced: func(objects []any) {
			listed := make(map[string]bool, len(objects))
			for _, o := range objects {
				si := o.(*importObject)
				listed[zone.Key(si.Service.Namespace, si.Service.Name)] = true
			}
			c.state.keepOnlyImports(listed)
		},
		synced: c.imports.open,
	}, c.line.heard)
}

func (c *controller) followSlices() {
	imported := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = mcsv1beta1.LabelServiceName + "," + notTheBrokers
		return o
	}
	all := c.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	lw := listWatch{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, imported(o))
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, imported(o))
		},
	}
	follow(c.ctx, "EndpointSlices", lw, &discoveryv1.EndpointSlice{}, &sink{
		reduce: reduceSlice,
		set:    func(o any) { c.state.setSlice(o.(*sliceObject)) },
		drop: func(o any) {
			s := o.(*sliceObject)
			c.state.dropSlice(s.Namespace, s.Name)
		},
		replaced: func(objects []any) {
			listed := make(map[string]bool, len(objects))
			for _, o := range objects {
				s := o.(*sliceObject)
				listed[s.Namespace+"/"+s.Name] = true
			}
			c.state.keepOnlySlices(listed)
		},
		synced: c.slices.open,
	}, c.line.heard)
}

// fetch asks for the slices of a service that were not kept, until all are there or nobody needs them any more.
func (c *controller) fetch(key string) {
	name, namespace, _ := strings.Cut(key, ".")
	for {
		list, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(c.ctx, metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + name + "," + notTheBrokers})
		if err == nil {
			c.state.refill(reduceAll(list))
		}
		if c.state.fetched(key) {
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}

func reduceAll(list *discoveryv1.EndpointSliceList) []*sliceObject {
	out := make([]*sliceObject, 0, len(list.Items))
	for i := range list.Items {
		if o, err := reduceSlice(&list.Items[i]); err == nil {
			out = append(out, o.(*sliceObject))
		}
	}
	return out
}

// learnIdentity finds out where this server is, as far as the Corefile does not say.
func (c *controller) learnIdentity() {
	if c.nodeName != "" {
		c.learnZone()
	}
	if c.fixedID {
		c.identity.open()
		return
	}
	const id = aboutv1beta1.PropertyClusterID
	lw := cache.NewListWatchFromClient(c.about, "clusterproperties", metav1.NamespaceAll, fields.OneTermEqualSelector(metav1.ObjectNameField, id))
	value := func(to string) {
		identified(to)
		c.state.setLocality(func(l *zone.Locality) { l.Cluster = to })
	}
	follow(c.ctx, "ClusterProperties", listWatch{lw.ListWithContextFunc, lw.WatchFuncWithContext}, &aboutv1beta1.ClusterProperty{}, &sink{
		reduce: func(o any) (any, error) { return o, nil },
		set:    func(o any) { value(o.(*aboutv1beta1.ClusterProperty).Spec.Value) },
		drop:   func(any) { value("") },
		replaced: func(objects []any) {
			if len(objects) == 0 {
				value("")
			}
		},
		synced: c.identity.open,
	}, func(_ string, err error) {
		// A cluster without the kind, or one that does not let us read it, has no id for us: all clusters are equally far.
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			c.identity.open()
		}
	})
}

// learnZone reads the zone of this server's node. It does not change while the server runs there.
func (c *controller) learnZone() {
	for {
		node, err := c.kube.CoreV1().Nodes().Get(c.ctx, c.nodeName, metav1.GetOptions{})
		if err == nil {
			c.state.setLocality(func(l *zone.Locality) { l.Zone = node.Labels[corev1.LabelTopologyZone] })
			return
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			log.Warningf("the zone of node %s cannot be read (%v): set the option `zone`", c.nodeName, err)
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}
