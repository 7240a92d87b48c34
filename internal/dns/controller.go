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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

const (
	// defaultStartupTimeout is how long a start waits until all objects have been read, as in
	// CoreDNS. After it, a first start serves failures and a reload is given up.
	defaultStartupTimeout = 5 * time.Second
	retryDelay            = time.Second
)

// controller keeps the zone up to date with the API server.
type controller struct {
	clients
	zone           *zone.Zone
	options        zone.Options
	state          *state
	connection     *connection
	nodeName       string
	nsService      string
	startupTimeout time.Duration
	fixedClusterID bool

	ready          atomic.Bool
	allSynced      chan struct{} // closed when ready
	importsSynced  latch
	slicesSynced   latch
	propertiesRead latch

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// latch is a channel that is closed on the first call of open.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func (l *latch) open() { l.once.Do(func() { close(l.opened) }) }

func newController(s settings, z *zone.Zone, nodeName string) (*controller, error) {
	api, err := connect(s.kubeconfig, s.context)
	if err != nil {
		return nil, err
	}
	c := &controller{
		clients: api, zone: z, options: s.Options, state: newState(s.locality),
		connection: &connection{down: map[string]bool{}}, fixedClusterID: s.locality.Cluster != "", allSynced: make(chan struct{}),
		nsService: s.nsService, startupTimeout: s.startupTimeout,
	}
	if s.locality.Headless && s.locality.Zone == "" {
		c.nodeName = nodeName
	}
	for _, l := range []*latch{&c.importsSynced, &c.slicesSynced, &c.propertiesRead} {
		l.opened = make(chan struct{})
	}
	if c.fixedClusterID {
		onClusterID(s.locality.Cluster)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func (c *controller) isSynced() bool { return c.ready.Load() }

// start starts the watches and waits until all objects have been read, at most for the startup
// timeout. After that a first start returns without error, and every query fails until the objects
// are read. A reload fails, so that the old server continues with the objects it has.
func (c *controller) start(reloading bool) error {
	c.running.Go(c.run)
	select {
	case <-c.allSynced:
		return nil
	case <-time.After(c.startupTimeout):
	}
	if reloading {
		err := fmt.Errorf("not all objects have been read within %s: the previous configuration stays in use", c.startupTimeout)
		return errors.Join(err, c.stop())
	}
	log.Warningf("not all objects have been read after %s: queries fail until the API server answers", c.startupTimeout)
	return nil
}

// stop stops the watches and waits until they have ended.
func (c *controller) stop() error {
	c.cancel()
	c.running.Wait()
	return nil
}

// run reads the imports before the slices, because the kind of an import decides whether its slices
// are stored.
func (c *controller) run() {
	c.running.Go(c.watchImports)
	c.running.Go(c.watchLocality)
	if c.nsService != "" {
		c.running.Go(c.readNameServers)
	}
	if !c.wait(&c.importsSynced) {
		return
	}
	c.running.Go(c.watchSlices)
	if !c.wait(&c.slicesSynced) || !c.wait(&c.propertiesRead) {
		return
	}
	c.build()
	c.zone.Publish()
	c.ready.Store(true)
	setGauge(synced, true)
	log.Infof("all objects have been read: answering %s", c.options.Name)
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

func (c *controller) wait(l *latch) bool {
	select {
	case <-l.opened:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// build rebuilds the answers of every dirty service. A service that changes several times in the
// meantime is built once.
func (c *controller) build() {
	for c.ctx.Err() == nil {
		j, found := c.state.nextJob()
		if !found {
			break
		}
		switch {
		case j.incomplete: // the previous answers stay until the slices are complete
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

// excludeBrokerObjects is a label selector that leaves out the objects of a broker on the same API
// server: aggregates and slices of all clusters, which are not services of this cluster.
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
		o.LabelSelector = mcsv1beta1.LabelServiceName + "," + excludeBrokerObjects + ",!" + v1alpha1.LabelClusterSetIP
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

// fetchSlices reads the slices of a service that has become headless or classic, until all of them
// are stored with their content or no answer needs them any more. The agent may still have to take
// LabelClusterSetIP from some, with which the watch does not deliver them.
func (c *controller) fetchSlices(key string) {
	name, namespace, _ := strings.Cut(key, ".")
	for {
		selector := mcsv1beta1.LabelServiceName + "=" + name + "," + excludeBrokerObjects
		list, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(c.ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil {
			c.state.restoreContent(key, reduceAll(list))
		}
		if c.state.fetchDone(key) {
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(retryDelay):
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

// watchLocality reads the zone of this server's node, as far as the Corefile does not set it, and
// watches the properties of the cluster.
func (c *controller) watchLocality() {
	if c.nodeName != "" {
		c.readNodeZone()
	}
	c.watchProperties()
}

// readNodeZone reads the topology zone of this server's node. It does not change while the server
// runs there.
func (c *controller) readNodeZone() {
	c.readOnce("the zone of node "+c.nodeName+": set the option `zone`", func() error {
		node, err := c.kube.CoreV1().Nodes().Get(c.ctx, c.nodeName, metav1.GetOptions{})
		if err == nil {
			c.state.setLocality(func(l *zone.Locality) { l.Zone = node.Labels[corev1.LabelTopologyZone] })
		}
		return err
	})
}

// readNameServers reads the addresses of the Service by which clients reach this server. They do
// not change while the Service is there.
func (c *controller) readNameServers() {
	namespace, name, _ := strings.Cut(c.nsService, "/")
	c.readOnce("the addresses of Service "+c.nsService+": those of this server are used", func() error {
		service, err := c.kube.CoreV1().Services(namespace).Get(c.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if addresses := parseAddresses(service.Spec.ClusterIPs); len(addresses) > 0 {
			c.zone.SetNameServers(addresses)
		}
		return nil
	})
}

// readOnce reads an object, until that succeeds or never will.
func (c *controller) readOnce(what string, read func() error) {
	for {
		err := read()
		if err == nil {
			return
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			log.Warningf("cannot read %s (%v)", what, err)
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(retryDelay):
		}
	}
}
