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
	zone           *zone.Zone
	options        zone.Options
	state          *state
	connection     *connection
	nodeName       string
	fixedClusterID bool

	ready         atomic.Bool
	allSynced     chan struct{} // closed when ready
	importsSynced latch
	slicesSynced  latch
	clusterIDRead latch

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// gate is closed by whoever opens it first.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func (g *latch) open() { g.once.Do(func() { close(g.opened) }) }

func newController(s settings, z *zone.Zone, nodeName string) (*controller, error) {
	api, err := connect(s.kubeconfig, s.context)
	if err != nil {
		return nil, err
	}
	c := &controller{
		clients: api, zone: z, options: s.Options, state: newState(s.locality),
		connection: &connection{down: map[string]bool{}}, fixedClusterID: s.locality.Cluster != "", allSynced: make(chan struct{}),
	}
	if s.locality.Headless && s.locality.Zone == "" {
		c.nodeName = nodeName
	}
	for _, g := range []*latch{&c.importsSynced, &c.slicesSynced, &c.clusterIDRead} {
		g.opened = make(chan struct{})
	}
	if c.fixedClusterID {
		onClusterID(s.locality.Cluster)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func (c *controller) isSynced() bool { return c.ready.Load() }

// begin starts following the API server and waits a while for everything to be known. A first start then goes on and fails every
// query until it is; a reload gives up, so that the server as it was goes on with what it knows.
func (c *controller) start(restarting bool) error {
	c.running.Go(c.run)
	select {
	case <-c.allSynced:
		return nil
	case <-time.After(startupTimeout):
	}
	if restarting {
		return errors.Join(fmt.Errorf("the API server did not answer within %s: the configuration as it was stays in use", startupTimeout), c.stop())
	}
	log.Warningf("not everything is known after %s: queries fail until the API server answers", startupTimeout)
	return nil
}

// end stops everything and waits for it.
func (c *controller) stop() error {
	c.cancel()
	c.running.Wait()
	return nil
}

// run follows the imports first: by their kind it is decided which slices are worth keeping.
func (c *controller) run() {
	c.running.Go(c.watchImports)
	c.running.Go(c.watchLocality)
	if !c.wait(&c.importsSynced) {
		return
	}
	c.running.Go(c.watchSlices)
	if !c.wait(&c.slicesSynced) || !c.wait(&c.clusterIDRead) {
		return
	}
	c.build()
	c.ready.Store(true)
	setGauge(synced, true)
	log.Infof("everything is known: %s is answered", c.options.Name)
	close(c.allSynced)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.state.wake:
			c.build()
		}
	}
}

func (c *controller) wait(g *latch) bool {
	select {
	case <-g.opened:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// build prepares the answers of every service that changed. Services that change several times meanwhile are built once.
func (c *controller) build() {
	for c.ctx.Err() == nil {
		j, found := c.state.nextJob()
		if !found {
			break
		}
		switch {
		case j.incomplete: // what was answered before stays until they are there
			if j.fetch {
				c.running.Go(func() { c.fetchSlices(j.key) })
			}
		case j.service == nil:
			c.zone.Set(j.key, nil)
			changeLatency.Observe(time.Since(j.since).Seconds())
		default:
			c.zone.Set(j.key, zone.Build(c.options, j.locality, *j.service))
			changeLatency.Observe(time.Since(j.since).Seconds())
		}
	}
	setZoneGauges(c.zone)
}

// notTheBrokers leaves out what a broker on the same API server holds: aggregates and slices of all clusters, which are no services of this one.
const excludeBrokerObjects = "!" + v1alpha1.LabelServiceNamespace

func (c *controller) watchImports() {
	all := c.mcs.ServiceImports(metav1.NamespaceAll)
	lw := listWatch{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = excludeBrokerObjects
			return all.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = excludeBrokerObjects
			return all.Watch(ctx, o)
		},
	}
	runReflector(c.ctx, "ServiceImports", lw, &mcsv1beta1.ServiceImport{}, &reflectorStore{
		reduce: reduceImport,
		set:    func(o any) { c.state.setImport(o.(*importObject)) },
		remove: func(o any) {
			si := o.(*importObject)
			c.state.removeImport(si.Service.Namespace, si.Service.Name)
		},
		retain: func(objects []any) {
			listed := make(map[string]bool, len(objects))
			for _, o := range objects {
				si := o.(*importObject)
				listed[zone.Key(si.Service.Namespace, si.Service.Name)] = true
			}
			c.state.retainImports(listed)
		},
		synced: c.importsSynced.open,
	}, c.connection.record)
}

func (c *controller) watchSlices() {
	imported := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = mcsv1beta1.LabelServiceName + "," + excludeBrokerObjects
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
	runReflector(c.ctx, "EndpointSlices", lw, &discoveryv1.EndpointSlice{}, &reflectorStore{
		reduce: reduceSlice,
		set:    func(o any) { c.state.setSlice(o.(*sliceObject)) },
		remove: func(o any) {
			s := o.(*sliceObject)
			c.state.removeSlice(s.Namespace, s.Name)
		},
		retain: func(objects []any) {
			listed := make(map[string]bool, len(objects))
			for _, o := range objects {
				s := o.(*sliceObject)
				listed[s.Namespace+"/"+s.Name] = true
			}
			c.state.retainSlices(listed)
		},
		synced: c.slicesSynced.open,
	}, c.connection.record)
}

// fetch asks for the slices of a service that were not kept, until all are there or nobody needs them any more.
func (c *controller) fetchSlices(key string) {
	name, namespace, _ := strings.Cut(key, ".")
	for {
		list, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(c.ctx, metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + name + "," + excludeBrokerObjects})
		if err == nil {
			c.state.restoreContent(reduceAll(list))
		}
		if c.state.fetchDone(key) {
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
func (c *controller) watchLocality() {
	if c.nodeName != "" {
		c.readNodeZone()
	}
	if c.fixedClusterID {
		c.clusterIDRead.open()
		return
	}
	const id = aboutv1beta1.PropertyClusterID
	lw := cache.NewListWatchFromClient(c.about, "clusterproperties", metav1.NamespaceAll, fields.OneTermEqualSelector(metav1.ObjectNameField, id))
	value := func(to string) {
		onClusterID(to)
		c.state.setLocality(func(l *zone.Locality) { l.Cluster = to })
	}
	runReflector(c.ctx, "ClusterProperties", listWatch{lw.ListWithContextFunc, lw.WatchFuncWithContext}, &aboutv1beta1.ClusterProperty{}, &reflectorStore{
		reduce: func(o any) (any, error) { return o, nil },
		set:    func(o any) { value(o.(*aboutv1beta1.ClusterProperty).Spec.Value) },
		remove: func(any) { value("") },
		retain: func(objects []any) {
			if len(objects) == 0 {
				value("")
			}
		},
		synced: c.clusterIDRead.open,
	}, func(_ string, err error) {
		// A cluster without the kind, or one that does not let us read it, has no id for us: all clusters are equally far.
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			c.clusterIDRead.open()
		}
	})
}

// learnZone reads the zone of this server's node. It does not change while the server runs there.
func (c *controller) readNodeZone() {
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
