package migrate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

// rounds are the orders in which the clusters east, west and north move. In some rounds a cluster
// goes back one step while the others stay, and forward again: each once, as the first, the second
// and the last.
var rounds = []struct {
	order  []int
	undone int // -1 for none
}{{[]int{0, 1, 2}, 0}, {[]int{2, 1, 0}, 1}, {[]int{1, 2, 0}, -1}, {[]int{0, 2, 1}, -1}, {[]int{1, 0, 2}, 2}, {[]int{2, 0, 1}, -1}}

// Three clusters move in every order, and back. Commands are killed after each of their steps, and
// other processes with them. All the time the services have their names, and their ServiceImports
// are never replaced.
func TestMoveInEveryOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "east", "west", "north")
	s := f.serve()
	for i, round := range rounds {
		t.Logf("round %d: order %v", i, round.order)
		clusters := []*cluster{f.clusters[round.order[0]], f.clusters[round.order[1]], f.clusters[round.order[2]]}
		var undone *cluster
		if round.undone >= 0 {
			undone = f.clusters[round.undone]
		}
		if i%3 == 0 {
			for _, c := range clusters {
				f.reach(c, migrate.Start, v1alpha1.MigrationShadow)
				f.join(c)
				s.unchanged(c.ID + " started")
			}
		}
		f.forward(s, clusters, undone)
		if i%2 == 1 { // the way back is longer then, but there is one
			for _, c := range clusters {
				f.reach(c, migrate.Finish, v1alpha1.MigrationFinished)
				checkClean(t, c, s.web)
			}
		}
		_ = clusters[i%3].Uninstall(t) // by hand: the policies refuse what it would delete
		s.unchanged("all finished")
		f.backward(s, clusters)
		if i%3 == 2 {
			for _, c := range f.brokerLast(clusters) {
				f.leave(c)
				f.reach(c, migrate.Back, "")
			}
		}
		s.unchanged("back at the beginning")
	}
	asked := s.prober.counts()
	t.Logf("asked, by cluster and phase: %v", asked)
	for _, c := range f.clusters {
		if asked[c.ID+" without its API server"] == 0 {
			t.Errorf("%s was never asked while it had no API server", c.ID)
		}
	}
	for _, step := range slices.Sorted(maps.Keys(f.kills)) {
		t.Logf("killed after %q, made %d times: %v", step, f.steps[step], f.kills[step])
		for which, times := range f.kills[step] {
			if times == 0 {
				t.Errorf("%s ran, and was never killed after %q", which, step)
			}
		}
	}
}

// forward switches and finishes the clusters. One of them, or none, goes back after each of the two
// and forward again.
func (f *fleetOfBoth) forward(s *served, clusters []*cluster, undone *cluster) {
	f.t.Helper()
	for _, c := range clusters {
		f.reach(c, migrate.Switch, v1alpha1.MigrationSwitched)
		if c == undone {
			f.reach(c, migrate.Back, v1alpha1.MigrationShadow)
			f.reach(c, migrate.Switch, v1alpha1.MigrationSwitched)
		}
		s.unchanged(c.ID + " switched")
	}
	s.addPod(clusters[0], true)
	for _, c := range clusters {
		f.finish(c)
		if c == undone {
			f.reach(c, migrate.Back, v1alpha1.MigrationSwitched)
			f.finish(c)
		}
		s.unchanged(c.ID + " finished")
		checkAdopted(f.t, c, s.web)
	}
	s.addPod(clusters[1], false)
}

// backward takes the clusters back to Lighthouse.
func (f *fleetOfBoth) backward(s *served, clusters []*cluster) {
	f.t.Helper()
	for _, c := range clusters {
		f.reach(c, migrate.Back, v1alpha1.MigrationSwitched)
	}
	for _, c := range clusters {
		f.reach(c, migrate.Back, v1alpha1.MigrationShadow)
		s.unchanged(c.ID + " is back")
	}
}

// finish ends Lighthouse in a cluster, of which Lighthouse's broker must not notice anything:
// agents of clusters that have not finished read it.
func (f *fleetOfBoth) finish(c *cluster) {
	f.t.Helper()
	before := f.lighthouseBroker()
	f.reach(c, migrate.Finish, v1alpha1.MigrationFinished)
	for name, version := range f.lighthouseBroker() {
		if before[name] != version {
			f.t.Errorf("finish of %s: %s of Lighthouse's broker was written", c.ID, name)
		}
		delete(before, name)
	}
	for name := range before {
		f.t.Errorf("finish of %s: %s of Lighthouse's broker was deleted", c.ID, name)
	}
}

// served are two services that east and west export, and the prober.
type served struct {
	f       *fleetOfBoth
	web, db types.NamespacedName // db is headless
	uids    map[types.NamespacedName]map[string]types.UID
	prober  *prober
	pods    int
}

func (f *fleetOfBoth) serve() *served {
	t := f.t
	t.Helper()
	ns := harness.Namespace(t, f.clusters[0].CP, f.clusters[1].CP, f.clusters[2].CP)
	s := &served{
		f: f, web: types.NamespacedName{Namespace: ns, Name: "web"}, db: types.NamespacedName{Namespace: ns, Name: "db"},
		uids: map[types.NamespacedName]map[string]types.UID{},
	}
	var addresses, pods []string
	for i, c := range f.clusters[:2] { // north only imports
		pod := fmt.Sprintf("10.%d.0.1", i+1)
		addresses = append(addresses, exportWithLighthouse(t, c.Agent, fleet.NewService(ns, "web"), pod).Spec.ClusterIP)
		exportWithLighthouse(t, c.Agent, fleet.NewService(ns, "db", func(svc *corev1.Service) { svc.Spec.ClusterIP = corev1.ClusterIPNone }), pod)
		pods = append(pods, pod)
	}
	for _, name := range []string{"web", "db"} {
		for _, c := range f.clusters {
			awaitLighthouseImport(t, c.Agent, ns, name, "east", "west")
		}
	}
	checkFacts(t, f.clusters[2].Agent, ns, "web", addresses...)
	s.uids[s.web], s.uids[s.db] = f.uids(s.web), f.uids(s.db)
	s.prober = probe(t, f, map[types.NamespacedName][]string{s.web: addresses, s.db: pods})
	return s
}

// unchanged fails if clients have noticed something, or a ServiceImport was replaced.
func (s *served) unchanged(when string) {
	t := s.f.t
	t.Helper()
	s.prober.check(t, when)
	for service, before := range s.uids {
		if after := s.f.uids(service); !maps.Equal(before, after) {
			t.Fatalf("%s: ServiceImports of %s were replaced: %v, before %v", when, service, after, before)
		}
	}
}

// addPod adds a pod to the headless service in a cluster, or in east if it exports nothing, and
// waits until all clusters know it: seamark-dns there, and Lighthouse's server if its agents run.
func (s *served) addPod(c *cluster, lighthouseRuns bool) {
	t := s.f.t
	t.Helper()
	if c.ID == "north" {
		c = s.f.clusters[0]
	}
	s.pods++
	address := fmt.Sprintf("10.%d.1.%d", 1+slices.Index(s.f.clusters, c), s.pods)
	s.prober.allow(s.db, address)
	slice := &discoveryv1.EndpointSlice{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: s.db.Namespace, Name: s.db.Name + "-a"}, slice); err != nil {
		t.Fatal(err)
	}
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
		Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
	})
	if err := c.Client.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	for _, importer := range s.f.clusters {
		for _, server := range importer.servers() {
			s.awaitPod(c, address, "seamark-dns of "+importer.ID, func() ([]string, bool, error) { return resolve(server.Address, s.db) })
		}
		if lighthouseRuns {
			s.awaitPod(c, address, "Lighthouse's server of "+importer.ID, func() ([]string, bool, error) {
				return importer.Resolve(t.Context(), s.db.Namespace, s.db.Name)
			})
		}
	}
}

// timeout is how long a pod may take to be known. After its start an API server refuses the
// members' writes to Seamark's broker for up to 30 seconds, and Lighthouse's agents need up to a
// minute to watch it again.
const timeout = 3 * time.Minute

// awaitPod waits until a server answers with the pod of a cluster.
func (s *served) awaitPod(of *cluster, address, server string, ask func() (addresses []string, found bool, err error)) {
	s.f.t.Helper()
	harness.EventuallyWithin(s.f.t, timeout, fmt.Sprintf("%s knows the new pod of %s", server, of.ID), func() error {
		got, _, err := ask()
		if err == nil && !slices.Contains(got, address) {
			err = fmt.Errorf("answered %v, not %s", got, address)
		}
		return err
	})
}

// brokerLast returns the clusters in the order in which they can leave. That with Seamark's broker
// is refused while it has other members: its agent restores the kinds that the broker needs when
// Submariner's operator has removed them.
func (f *fleetOfBoth) brokerLast(clusters []*cluster) []*cluster {
	host := f.clusters[0]
	if err := migrate.MayLeave(f.t.Context(), host.client); err == nil || !strings.Contains(err.Error(), "north, west") {
		f.t.Errorf("%s has the broker of north and west, and may leave before them: %v", host.ID, err)
	}
	return append(slices.DeleteFunc(slices.Clone(clusters), func(c *cluster) bool { return c == host }), host)
}

// leave removes a cluster from Seamark's clusterset, as seamark leave does.
func (f *fleetOfBoth) leave(c *cluster) {
	t := f.t
	t.Helper()
	if err := migrate.MayLeave(t.Context(), c.client); err != nil {
		t.Fatal(err)
	}
	c.member.Stop()
	if _, err := brokeradmin.Leave(t.Context(), c.client); err != nil {
		t.Fatal(err)
	}
	if _, err := brokeradmin.RemoveMember(t.Context(), f.fleet.Admin, objects.DefaultNamespace, c.ID); err != nil {
		t.Fatal(err)
	}
	c.member = nil
}

// checkAdopted fails unless Seamark manages the ServiceImport, and nothing of Lighthouse is left.
func checkAdopted(t *testing.T, c *cluster, service types.NamespacedName) {
	t.Helper()
	si := &mcsv1beta1.ServiceImport{}
	harness.Eventually(t, "v1beta1 is served in "+c.ID, func() error { return c.client.Get(t.Context(), service, si) })
	var clusters []string
	for _, s := range si.Status.Clusters {
		clusters = append(clusters, s.Cluster)
	}
	slices.Sort(clusters)
	if !objects.IsManagedImport(si) || si.Annotations[v1alpha1.AnnotationMode] != v1alpha1.ModeClassic ||
		!slices.Equal(clusters, []string{"east", "west"}) {
		t.Errorf("%s: the ServiceImport has labels %v, annotations %v, clusters %v", c.ID, si.Labels, si.Annotations, clusters)
	}
}

// checkClean fails if something of Lighthouse is left in a cluster.
func checkClean(t *testing.T, c *cluster, service types.NamespacedName) {
	t.Helper()
	if left := lighthouseSlices(t, c.Agent, service.Namespace, service.Name); len(left) > 0 {
		t.Errorf("%s still has %d slices of Lighthouse", c.ID, len(left))
	}
	list := &mcsv1alpha1.ServiceImportList{}
	if err := c.Client.List(t.Context(), list, client.InNamespace(lighthouse.OperatorNamespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%s: %d contributions to Lighthouse are left (%v)", c.ID, len(list.Items), err)
	}
}
