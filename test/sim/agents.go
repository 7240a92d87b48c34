package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/seamark-dev/seamark/internal/agent"
)

// Times of simulated agents. Checking the connection less often than a real agent saves most of the
// time of a history.
const (
	renewEvery    = 5 * time.Second
	leaseDuration = 20 * time.Second
	pollEvery     = 3 * time.Second

	minBackoff = 50 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// agentProcess is one run of a member's agent, from its start until it stops or crashes.
type agentProcess struct {
	member        *member
	number        int
	local, broker *view
	queues        []*queue
	tasks         []manager.Runnable
	started       time.Time
	cancel        context.CancelFunc
	ctx           context.Context
	stopped       bool
	// crashIn is the number of the write before which the process crashes; 0 means never.
	crashIn int
}

func (a *agentProcess) String() string { return fmt.Sprintf("agent %s#%d", a.member.id, a.number) }

// start starts a process of the member's agent.
func (m *member) start() {
	w := m.world
	w.processes++
	a := &agentProcess{member: m, number: w.processes, started: time.Now()}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	localOptions, brokerOptions := agent.SimulatedCaches(m.membership)
	a.local, a.broker = newView(m.server, a, localOptions), newView(w.broker, a, brokerOptions)
	a.broker.cut = m.cutOff
	local := &simCluster{view: a.local, client: &apiClient{agent: a, server: m.server, view: a.local}}
	err := agent.Simulate(a.ctx, agent.Options{
		RenewEvery: renewEvery, LeaseDuration: leaseDuration, PollEvery: pollEvery,
	}, agent.World{
		Membership: m.membership, Facts: m.facts,
		Local:        &simManager{simCluster: local, agent: a},
		Broker:       &simCluster{view: a.broker, client: &apiClient{agent: a, server: w.broker, view: a.broker}},
		LocalDirect:  &apiClient{agent: a, server: m.server},
		BrokerDirect: &apiClient{agent: a, server: w.broker},
		Control:      a.control, WriteAll: a.writeAll, RestartWatches: a.relistBroker, Restarted: a.brokerIsRelisted,
	})
	if err != nil {
		panic(err)
	}
	// The manager starts no controller before the caches of this cluster are filled.
	for _, i := range a.local.order {
		i.deliver(w.staleness())
	}
	for _, task := range a.tasks {
		w.tasks++
		// No two tasks ever act at the same moment, so their order is always the same.
		offset := time.Duration(w.tasks)*7919*time.Microsecond%pollEvery + time.Duration(w.tasks)
		go func() {
			select {
			case <-a.ctx.Done():
				return
			case <-time.After(offset):
			}
			_ = task.Start(a.ctx)
		}()
	}
	m.agent = a
}

// restart stops the process and starts another.
func (m *member) restart() {
	m.agent.stop()
	m.world.settle() // until its tasks have ended
	m.start()
}

// stop ends the process at once. What it had in memory is lost.
func (a *agentProcess) stop() {
	if a.stopped {
		return
	}
	a.stopped = true
	a.cancel()
	a.local.close()
	a.broker.close()
	a.member.world.drop(a)
}

// inOrder is called before something that tasks do with the world, and returns what is called
// after it; see world.order.
func (a *agentProcess) inOrder() (done func()) {
	order := &a.member.world.order
	order.Add(1)
	return func() { order.Add(1) }
}

func (a *agentProcess) relistBroker() {
	defer a.inOrder()()
	for _, i := range a.broker.order {
		i.mustList = true
		i.wake()
	}
}

func (a *agentProcess) brokerIsRelisted() bool {
	defer a.inOrder()()
	return !slices.ContainsFunc(a.broker.order, func(i *informer) bool { return i.mustList })
}

// writeAll makes the writes of one reconcile in an order that the seed chooses.
func (a *agentProcess) writeAll(writes []func() error) error {
	var errs []error
	for _, i := range a.member.world.rng.Perm(len(writes)) {
		errs = append(errs, writes[i]())
	}
	return joinErrors(errs)
}

func (a *agentProcess) control(name string, r reconcile.Reconciler, sources []source.Source) error {
	q := &queue{agent: a, name: name, reconciler: r, failures: map[reconcile.Request]int{}}
	a.queues = append(a.queues, q)
	for _, s := range sources {
		if err := s.Start(a.ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// queue is the work queue of one reconciler. The scheduler takes requests from the world's list.
type queue struct {
	agent      *agentProcess
	name       string
	reconciler reconcile.Reconciler
	failures   map[reconcile.Request]int
}

// work is a request of a queue.
type work struct {
	queue   *queue
	request reconcile.Request
	at      time.Time // not before
}

func compareWork(a, b work) int {
	return cmp.Or(cmp.Compare(a.queue.agent.number, b.queue.agent.number), cmp.Compare(a.queue.name, b.queue.name),
		compareNames(a.request.NamespacedName, b.request.NamespacedName))
}

// workList is a sorted list, so that its order does not depend on the order of additions.
type workList struct {
	mu    sync.Mutex
	items []work
}

func (l *workList) add(item work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if item.queue.agent.stopped {
		return
	}
	at, known := slices.BinarySearchFunc(l.items, item, compareWork)
	switch {
	case !known:
		l.items = slices.Insert(l.items, at, item)
	case item.at.Before(l.items[at].at):
		l.items[at].at = item.at
	}
}

func (l *workList) take(at int) work {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.items[at]
	l.items = slices.Delete(l.items, at, at+1)
	return item
}

func (l *workList) drop(a *agentProcess) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = slices.DeleteFunc(l.items, func(item work) bool { return item.queue.agent == a })
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(request reconcile.Request) {
	defer q.agent.inOrder()()
	q.agent.member.world.ready.add(work{queue: q, request: request})
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(request reconcile.Request, d time.Duration) {
	defer q.agent.inOrder()()
	q.agent.member.world.delayed.add(work{queue: q, request: request, at: time.Now().Add(d)})
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(request reconcile.Request) {
	q.failures[request]++
	q.AddAfter(request, min(minBackoff<<min(q.failures[request]-1, 10), maxBackoff))
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(request reconcile.Request) { delete(q.failures, request) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue) NumRequeues(request reconcile.Request) int { return q.failures[request] }

// The scheduler takes requests from the world's list, so these are not used.
func (q *queue) Len() int                       { return 0 }
func (q *queue) Get() (reconcile.Request, bool) { return reconcile.Request{}, true }
func (q *queue) Done(reconcile.Request)         {}
func (q *queue) ShutDown()                      {}
func (q *queue) ShutDownWithDrain()             {}
func (q *queue) ShuttingDown() bool             { return q.agent.stopped }

// reconcile runs one request.
func (q *queue) reconcile(request reconcile.Request) {
	w := q.agent.member.world
	writes := w.writes
	result, err := q.reconciler.Reconcile(context.Background(), request)
	if w.trace != nil {
		w.logf("%s reconciles %s %s: %d writes, again after %v, error %v", q.agent, q.name, request, w.writes-writes, result.RequeueAfter, err)
	}
	switch {
	case q.agent.stopped:
	case err != nil || result.Requeue: //nolint:staticcheck // what the instrumented reconciler returns
		q.AddRateLimited(request)
	case result.RequeueAfter > 0:
		q.Forget(request)
		q.AddAfter(request, result.RequeueAfter)
	default:
		q.Forget(request)
	}
}

// simCluster is one API server as an agent is connected to it.
type simCluster struct {
	cluster.Cluster // nil: what is not modelled panics

	view   *view
	client *apiClient
}

func (c *simCluster) GetCache() cache.Cache    { return c.view }
func (c *simCluster) GetClient() client.Client { return c.client }
func (c *simCluster) GetAPIReader() client.Reader {
	return &apiClient{agent: c.client.agent, server: c.client.server}
}
func (c *simCluster) GetFieldIndexer() client.FieldIndexer           { return c.view }
func (c *simCluster) GetEventRecorder(string) recorder.EventRecorder { return noEvents{} }
func (c *simCluster) Start(ctx context.Context) error                { <-ctx.Done(); return nil }

// simManager is the manager of a simulated agent.
type simManager struct {
	*simCluster
	manager.Manager // nil: what is not modelled panics

	agent *agentProcess
}

func (m *simManager) GetCache() cache.Cache                { return m.simCluster.GetCache() }
func (m *simManager) GetClient() client.Client             { return m.simCluster.GetClient() }
func (m *simManager) GetAPIReader() client.Reader          { return m.simCluster.GetAPIReader() }
func (m *simManager) GetFieldIndexer() client.FieldIndexer { return m.simCluster.GetFieldIndexer() }
func (m *simManager) GetEventRecorder(s string) recorder.EventRecorder {
	return m.simCluster.GetEventRecorder(s)
}
func (m *simManager) Start(ctx context.Context) error { return m.simCluster.Start(ctx) }

// Add implements manager.Manager.
func (m *simManager) Add(task manager.Runnable) error {
	m.agent.tasks = append(m.agent.tasks, task)
	return nil
}

// Elected implements manager.Manager: a simulated process is the leader while it runs.
func (m *simManager) Elected() <-chan struct{} {
	elected := make(chan struct{})
	close(elected)
	return elected
}

func (m *simManager) AddHealthzCheck(string, healthz.Checker) error { return nil }
func (m *simManager) AddReadyzCheck(string, healthz.Checker) error  { return nil }

type noEvents struct{}

var _ events.EventRecorder = noEvents{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
func (noEvents) AnnotatedEventf(runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any) {
}

func sortedKeys(m map[types.NamespacedName]client.Object) []types.NamespacedName {
	keys := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareNames)
	return keys
}
