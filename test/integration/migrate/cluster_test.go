package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

// fleetOfBoth is a clusterset of Lighthouse whose clusters move to Seamark.
type fleetOfBoth struct {
	t        *testing.T
	fleet    *fleet.Fleet
	clusters []*cluster
	steps    map[string]int             // how often each step of a command was made
	kills    map[string]map[process]int // how often each process was killed after it
}

// cluster is one of its clusters. client knows all kinds.
type cluster struct {
	*lighthouse.Agent
	operator *lighthouse.Operator
	client   client.Client
	member   *fleet.Member // nil before it joins

	mu  sync.Mutex
	dns []*dnsprocess.Server // two replicas of seamark-dns, none before it joins
	// outages counts the beginnings and the ends of the times without an API server: it is odd while
	// there is none. reads counts how often the prober has read whom to ask.
	outages, reads int
}

// read returns how often the prober has read whom to ask, and the count of outages.
func (c *cluster) read() (reads, outages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.outages
}

// change changes a count.
func (c *cluster) change(count *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
}

// servers returns the replicas of seamark-dns. The prober and the test ask at the same time.
func (c *cluster) servers() []*dnsprocess.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.dns)
}

// newFleet starts control planes with Lighthouse on all of them. Its broker and Seamark's are on
// the first.
func newFleet(t *testing.T, ids ...string) *fleetOfBoth {
	t.Helper()
	cps := harness.Fresh(t, len(ids))
	set := lighthouse.New(t, cps[0], cps, ids...)
	f := &fleetOfBoth{t: t, steps: map[string]int{}, kills: map[string]map[process]int{}}
	for i, a := range set.Agents {
		c := &cluster{Agent: a, operator: a.Install(t, ids...)}
		var err error
		if c.client, err = brokeradmin.NewClient(cps[i].Config()); err != nil {
			t.Fatal(err)
		}
		if err := c.operator.Start(t); err != nil {
			t.Fatalf("start the operator of %s: %v", c.ID, err)
		}
		f.clusters = append(f.clusters, c)
	}
	classic := false
	var err error
	if f.fleet, err = fleet.New(t.Context(), cps[0], nil, fleet.Options{EnableClusterSetIP: &classic}); err != nil {
		t.Fatal(err)
	}
	return f
}

// join makes a cluster a member, as seamark join does, and runs its agent and its DNS server.
func (f *fleetOfBoth) join(c *cluster) {
	t := f.t
	t.Helper()
	if err := migrate.MayJoin(t.Context(), c.client); err != nil {
		t.Fatal(err)
	}
	m, err := f.fleet.Join(t.Context(), c.CP, c.ID, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Agent.BesideSubmariner = true
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	c.member = m
	for _, name := range []string{"seamark-agent", "seamark-dns"} {
		if err := lighthouse.SetDeployment(t.Context(), c.client, objects.AgentNamespace, name, true); err != nil {
			t.Fatal(err)
		}
	}
	err = c.client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "seamark-dns"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for len(c.servers()) < 2 {
		server := dnsprocess.Run(t, func(port string) string {
			return fmt.Sprintf("clusterset.local:%s {\n bind 127.0.0.1\n clusterset clusterset.local {\n  kubeconfig %s\n }\n}\n",
				port, c.CP.Kubeconfig())
		})
		c.mu.Lock()
		c.dns = append(c.dns, server)
		c.mu.Unlock()
	}
	c.awaitDNS(t)
}

// awaitDNS waits until both replicas of seamark-dns answer.
func (c *cluster) awaitDNS(t *testing.T) {
	t.Helper()
	for _, server := range c.servers() {
		harness.Eventually(t, "seamark-dns of "+c.ID+" answers", func() error {
			_, _, err := resolve(server.Address, types.NamespacedName{Namespace: "default", Name: "none"})
			return err
		})
	}
}

// reach brings a cluster to a goal. The command is killed after each of its steps, and run again.
func (f *fleetOfBoth) reach(c *cluster, goal migrate.Goal, want v1alpha1.MigrationPhase) {
	t := f.t
	t.Helper()
	options := f.options(c)
	for range 40 {
		ctx, kill := context.WithCancel(t.Context())
		step := ""
		result, err := migrate.Run(ctx, c.client, goal, options, 2*time.Minute, migrate.Progress{
			Changed: func(text string) { t.Logf("%s, %s: %s", c.ID, goal, text); step = text; kill() },
			Waiting: func(until string) { t.Logf("%s, %s: waiting until %s", c.ID, goal, until) },
		})
		kill()
		switch {
		case err == nil && result.Phase == want:
			return
		case err == nil:
			t.Fatalf("%s of %s ends in phase %q, want %q", goal, c.ID, result.Phase, want)
		case step == "" || !errors.Is(err, context.Canceled):
			t.Fatalf("%s of %s: %v", goal, c.ID, err)
		}
		f.killOne(c, string(goal)+": "+step)
		if goal == migrate.Back && want != "" {
			if _, phase, err := migrate.ReadPhase(t.Context(), c.client); err == nil && phase == want {
				return // one more run would undo the next command
			}
		}
	}
	t.Fatalf("%s of %s does not end", goal, c.ID)
}

func (f *fleetOfBoth) options(self *cluster) migrate.Options {
	// These clusters have no CoreDNS that would need its time.
	o := migrate.Options{Others: map[string]v1alpha1.MigrationPhase{}, DNSLoaded: true}
	for _, c := range f.clusters {
		if c != self {
			id, phase, err := migrate.ReadPhase(f.t.Context(), c.client)
			if err != nil {
				f.t.Fatal(err)
			}
			o.Others[id] = phase
		}
	}
	return o
}

// process is a process of a cluster that can be killed.
type process string

const (
	lighthouseAgent process = "Lighthouse's agent"
	operator        process = "Submariner's operator"
	seamarkAgent    process = "seamark-agent"
	seamarkDNS      process = "seamark-dns"
	// apiServers are the API server of the cluster and the one with both brokers, at the same time.
	apiServers process = "the API servers"
)

// agentStarts is the step after which Submariner's operator starts Lighthouse's agent. Whether that
// can be killed then must not be left to chance.
const agentStarts = "back: The Submariner resource asks for service discovery again."

// killOne kills a process of a cluster after a step of a command, and starts it again: the one that
// was killed least often after this step. Over the rounds a step is made about six times before
// clusters join, when three processes run, and about twenty times later, when five run. Every
// second and every fourth time is followed by a kill, so each process dies after each step.
func (f *fleetOfBoth) killOne(c *cluster, step string) {
	f.t.Helper()
	n := f.steps[step]
	f.steps[step]++
	if c.member == nil && n%2 > 0 || c.member != nil && n%4 > 0 {
		return
	}
	if step == agentStarts {
		harness.Eventually(f.t, "Lighthouse's agent of "+c.ID+" runs", func() error {
			if !c.operator.AgentRuns() {
				return errors.New("it does not run")
			}
			return nil
		})
	}
	running := []process{operator, apiServers}
	if c.operator.AgentRuns() {
		running = append(running, lighthouseAgent)
	}
	if c.member != nil {
		running = append(running, seamarkAgent, seamarkDNS)
	}
	if f.kills[step] == nil {
		f.kills[step] = map[process]int{}
	}
	for _, p := range running {
		f.kills[step][p] += 0 // it ran after this step, so it is to be killed at some time
	}
	which := slices.MinFunc(running, func(a, b process) int { return f.kills[step][a] - f.kills[step][b] })
	f.kills[step][which]++
	f.restart(c, which)
}

// restart kills a process and starts it again.
func (f *fleetOfBoth) restart(c *cluster, which process) {
	t := f.t
	t.Helper()
	t.Logf("%s: restarting %s", c.ID, which)
	switch which {
	case lighthouseAgent:
		c.operator.RestartAgent(t)
	case operator:
		if err := c.operator.Start(t); err != nil {
			t.Fatalf("the operator of %s does not start: %v", c.ID, err)
		}
	case seamarkAgent:
		c.member.Stop()
		if err := c.member.Start(); err != nil {
			t.Fatal(err)
		}
	case seamarkDNS:
		c.servers()[0].Restart(t)
		c.mu.Lock()
		slices.Reverse(c.dns) // the other replica next time
		c.mu.Unlock()
		c.awaitDNS(t)
	case apiServers:
		f.restartAPIServers(c)
	}
}

// restartAPIServers kills the API server of a cluster and the one with the brokers, and starts them
// again. The other clusters go on without the brokers.
func (f *fleetOfBoth) restartAPIServers(c *cluster) {
	t := f.t
	t.Helper()
	affected := slices.Compact([]*cluster{c, f.clusters[0]})
	for _, a := range affected {
		before, _ := a.read()
		harness.Eventually(t, "the prober knows what the last step has changed in "+a.ID, func() error {
			if now, _ := a.read(); now < before+2 { // the first may have begun before
				return fmt.Errorf("it has read %d times", now-before)
			}
			return nil
		})
	}
	for _, a := range affected {
		a.change(&a.outages)
		if err := a.CP.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range affected {
		if err := a.CP.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.change(&a.outages)
	}
}

// uids returns the uids of a service's ServiceImports, by cluster.
func (f *fleetOfBoth) uids(service types.NamespacedName) map[string]types.UID {
	f.t.Helper()
	out := map[string]types.UID{}
	for _, c := range f.clusters {
		si := &mcsv1alpha1.ServiceImport{}
		if err := c.Client.Get(f.t.Context(), service, si); err != nil {
			f.t.Fatalf("%s: %v", c.ID, err)
		}
		out[c.ID] = si.UID
	}
	return out
}

// lighthouseBroker returns the resource versions of all objects on Lighthouse's broker.
func (f *fleetOfBoth) lighthouseBroker() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	for _, list := range []client.ObjectList{imports, endpoints} {
		if err := f.clusters[0].Client.List(f.t.Context(), list, client.InNamespace(lighthouse.BrokerNamespace)); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, si := range imports.Items {
		out["ServiceImport "+si.Name] = si.ResourceVersion
	}
	for _, s := range endpoints.Items {
		out["EndpointSlice "+s.Name] = s.ResourceVersion
	}
	return out
}
