package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/previous"
)

// A clusterset of the previous version is upgraded: first the broker, then one member after the
// other. While members of both versions work, services are exported, joined and change their
// endpoints. No service loses its clusterset IP or its endpoints in any cluster, at any moment.
func TestMembersOfBothVersions(t *testing.T) {
	cps := harness.Fresh(t, 3)
	old, err := previous.Build()
	if err != nil {
		t.Fatal(err)
	}
	fleet.AgentBinary(t) // a member whose agent is away for long is stale
	ids := []string{"east", "west", "north"}
	members := joinPrevious(t, old, cps, ids)
	for _, m := range members {
		if err := m.StartBinary(old.Agent); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Kill)
	}
	ns := fleet.NewNamespace(t, members...)
	want := map[string]map[string][]string{"one": {}, "all": {}}
	export := func(i int, name string) {
		t.Helper()
		m, address := members[i], fmt.Sprintf("10.%d.0.%d", i+1, len(want)+len(want[name])+1)
		m.Serve(t, fleet.NewService(ns, name), address)
		m.Export(t, ns, name)
		if want[name] == nil {
			want[name] = map[string][]string{}
		}
		want[name][m.ID] = []string{address}
	}
	awaitAll := func() {
		t.Helper()
		for name, addresses := range want {
			for _, m := range members {
				m.AwaitImport(t, ns, name, addresses)
			}
		}
	}
	export(0, "one")
	for i := range members {
		export(i, "all")
	}
	awaitAll()
	guards := make([]*guard, len(members))
	for i, m := range members {
		guards[i] = newGuard(t, m, cps[i].Config(), ns, "one", "all")
	}

	if _, err := brokeradmin.Deploy(t.Context(), members[0].Client, brokeradmin.DeployOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, m := range members {
		m.Kill()
		m.StartProcess(t)
		// A new service of the upgraded member, one that members of both versions export, and
		// an endpoint that changes in an upgraded and in a previous one.
		export(i, "of-"+m.ID)
		for j := range members {
			export(j, "with-"+m.ID)
		}
		for j := range members {
			address := fmt.Sprintf("10.%d.1.%d", j+1, i+1)
			fleet.Update(t, members[j], ns, "all-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Addresses = []string{address}
			})
			want["all"][members[j].ID] = []string{address}
		}
		awaitAll()
		for _, g := range guards {
			g.add("of-"+m.ID, "with-"+m.ID)
		}
	}
	for _, g := range guards {
		g.check(t)
	}
	// The same clusterset IP everywhere.
	for name := range want {
		ips := map[string]bool{}
		for _, m := range members {
			si, err := m.Import(ns, name)
			if err != nil {
				t.Fatal(err)
			}
			ips[si.Annotations[v1alpha1.AnnotationClusterSetIPs]] = true
		}
		if len(ips) != 1 || ips[""] {
			t.Errorf("service %s has the clusterset IPs %v", name, slices.Sorted(maps.Keys(ips)))
		}
	}
}

// joinPrevious makes clusters members with the previous version's CLI.
func joinPrevious(t *testing.T, old previous.Programs, cps []*controlplane.ControlPlane, ids []string) (members []*fleet.Member) {
	t.Helper()
	configs := map[string]*rest.Config{}
	for i, cp := range cps {
		configs[ids[i]] = cp.Config()
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*harness.Kubeconfig(configs, "default"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	run := func(line string) {
		t.Helper()
		cmd := exec.Command(old.CLI, append(strings.Fields(line), "--kubeconfig", kubeconfig)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("seamark %s of the previous version: %v\n%s", line, err, out)
		}
	}
	run("broker deploy --context " + ids[0])
	for i, cp := range cps {
		run(fmt.Sprintf("join --broker-context %s --context %s --clusterid %s --no-install", ids[0], ids[i], ids[i]))
		// On a loaded machine an agent that is replaced is away for longer than leases last elsewhere.
		m, err := fleet.Joined(cp, ids[i], fleet.Options{RenewEvery: 2 * time.Second, LeaseDuration: 40 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	return members
}

// guard watches the imports of a cluster, and notes every moment in which a service has another
// clusterset IP or no ready endpoint.
type guard struct {
	member *fleet.Member

	mu       sync.Mutex
	services map[string]string // with the clusterset IPs of the first import seen
	slices   map[string]*discoveryv1.EndpointSlice
	problems []string
}

func newGuard(t *testing.T, m *fleet.Member, config *rest.Config, ns string, services ...string) *guard {
	t.Helper()
	g := &guard{member: m, services: map[string]string{}, slices: map[string]*discoveryv1.EndpointSlice{}}
	c, err := client.NewWithWatch(config, client.Options{Scheme: harness.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var slicesNow discoveryv1.EndpointSliceList
	if err := c.List(t.Context(), &slicesNow, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range slicesNow.Items {
		g.slices[slicesNow.Items[i].Name] = &slicesNow.Items[i]
	}
	for _, name := range services {
		si, err := m.Import(ns, name)
		if err != nil {
			t.Fatal(err)
		}
		g.services[name] = ipsOf(si)
	}
	from := &client.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{ResourceVersion: slicesNow.ResourceVersion}}
	g.follow(t, c, &discoveryv1.EndpointSliceList{}, from, func(e watch.Event) {
		if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok {
			g.sliceChanged(e.Type, s)
		}
	})
	g.follow(t, c, &mcsv1beta1.ServiceImportList{}, from, func(e watch.Event) {
		if si, ok := e.Object.(*mcsv1beta1.ServiceImport); ok {
			g.importChanged(e.Type, si)
		}
	})
	return g
}

// follow handles the events of a kind until the test ends.
func (g *guard) follow(t *testing.T, c client.WithWatch, list client.ObjectList, from *client.ListOptions, handle func(watch.Event)) {
	t.Helper()
	w, err := c.Watch(context.Background(), list, from)
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range w.ResultChan() {
			handle(e)
		}
	})
	t.Cleanup(func() {
		w.Stop()
		ended.Wait()
	})
}

// add adds services that have been imported meanwhile.
func (g *guard) add(services ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range services {
		g.services[name] = ""
	}
}

func (g *guard) importChanged(event watch.EventType, si *mcsv1beta1.ServiceImport) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first, guarded := g.services[si.Name]
	switch {
	case !guarded:
	case event == watch.Deleted:
		g.note("the import of %s is deleted", si.Name)
	case first == "":
		g.services[si.Name] = ipsOf(si)
	case ipsOf(si) != first:
		g.note("%s had the clusterset IPs %s, and has %s", si.Name, first, ipsOf(si))
	}
}

func (g *guard) sliceChanged(event watch.EventType, s *discoveryv1.EndpointSlice) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if event == watch.Deleted {
		delete(g.slices, s.Name)
	} else {
		g.slices[s.Name] = s
	}
	name := s.Labels[mcsv1beta1.LabelServiceName]
	if _, guarded := g.services[name]; !guarded {
		return
	}
	ready := map[string]int{}
	for _, other := range g.slices {
		if other.Labels[mcsv1beta1.LabelServiceName] != name {
			continue
		}
		source := other.Labels[mcsv1beta1.LabelSourceCluster]
		ready[source] += 0
		for _, e := range other.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready[source]++
			}
		}
	}
	if source := s.Labels[mcsv1beta1.LabelSourceCluster]; ready[source] == 0 {
		g.note("%s has no ready endpoint of cluster %s after slice %s with %d endpoints was %s", name, source, s.Name, len(s.Endpoints),
			strings.ToLower(string(event)))
	}
}

func (g *guard) note(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

func (g *guard) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.slices) == 0 {
		t.Errorf("no slice was seen in %s", g.member.ID)
	}
	for _, problem := range g.problems {
		t.Errorf("in %s: %s", g.member.ID, problem)
	}
}

func ipsOf(si *mcsv1beta1.ServiceImport) string { return strings.Join(si.Spec.IPs, ",") }
