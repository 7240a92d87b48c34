package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// heldServices is how many services a member exports in the tests of mass withdrawals.
const heldServices = 6

// TestMassWithdrawal makes an exporting cluster lose all its exports, in one way after the other.
// Where its agent did not see users delete them, no import changes; where it did, all imports go at
// once.
func TestMassWithdrawal(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 3)
	f := fleet.Started(t, cps[0], cps, fleet.Options{IDs: []string{"north", "east", "west"}})
	w := newWithdrawals(t, f, f.Members[1], f.Members[2])
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the API server is restored to a state before the exports", w.restored},
		{"the CRD of ServiceExports is deleted and comes back", w.kindDeleted},
		{"a user deletes all exports", w.deletedByUser},
		{"the exports are deleted while no agent runs", w.holdEnds},
		{"the broker loses the records", w.brokerLostRecords},
		{"the member leaves", w.leaves},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// withdrawals are the services that east exports and west imports. The members may have other ids.
type withdrawals struct {
	*fleet.Fleet
	east, west *fleet.Member
	ns         string
	want       map[string]sources
}

func newWithdrawals(t *testing.T, f *fleet.Fleet, east, west *fleet.Member) *withdrawals {
	t.Helper()
	w := &withdrawals{Fleet: f, east: east, west: west, ns: fleet.NewNamespace(t, east, west), want: map[string]sources{}}
	for i := range heldServices {
		w.want[serviceName(i)] = sources{east.ID: {address(i)}}
	}
	return w
}

// export exports all services from east. Those that exist stay.
func (w *withdrawals) export(t *testing.T) {
	t.Helper()
	for i := range heldServices {
		svc := fleet.NewService(w.ns, serviceName(i))
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: serviceName(i)}}
		for _, obj := range []client.Object{svc, fleet.NewSlice(svc, "abc", address(i)), export} {
			if err := w.east.Client.Create(t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	awaitImports(t, w.west, w.ns, w.want)
	for i := range heldServices {
		w.east.AwaitExported(t, w.ns, serviceName(i))
	}
}

// awaitHeld waits until this many records are marked as held, and the imports of west say why.
func (w *withdrawals) awaitHeld(t *testing.T, want int, reason mcsv1beta1.ServiceImportConditionReason) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d withdrawals are held", want), func() error {
		marked, err := w.marked(t.Context())
		if err != nil {
			return err
		}
		if marked != want {
			return fmt.Errorf("%d records are marked", marked)
		}
		return w.checkSaid(want, reason)
	})
}

func (w *withdrawals) marked(ctx context.Context) (int, error) {
	var records v1alpha1.ExportRecordList
	err := w.Admin.List(ctx, &records, client.MatchingLabels{v1alpha1.LabelServiceNamespace: w.ns})
	marked := 0
	for i := range records.Items {
		if records.Items[i].Annotations[v1alpha1.AnnotationWithdrawalHeld] != "" {
			marked++
		}
	}
	return marked, err
}

// checkSaid returns an error unless this many imports of west say that a withdrawal is held.
func (w *withdrawals) checkSaid(want int, reason mcsv1beta1.ServiceImportConditionReason) error {
	said := 0
	for i := range heldServices {
		si, err := w.west.Import(w.ns, serviceName(i))
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionWithdrawalHeld))
		if c != nil && c.Status == metav1.ConditionTrue && (reason == "" || c.Reason == string(reason)) {
			said++
		}
	}
	if said != want {
		return fmt.Errorf("%d imports of west have the condition with reason %s", said, reason)
	}
	return nil
}

// watch watches that the imports of west do not change.
func (w *withdrawals) watch(t *testing.T) (check func()) {
	t.Helper()
	return watchForGaps(t, &fleet.Fleet{Members: []*fleet.Member{w.west}}, w.ns, w.want)
}

func (w *withdrawals) restored(t *testing.T) {
	w.east.Stop() // an agent that has just started ends when its API server stops
	restore, err := w.east.CP.Snapshot(t.Context())
	must(t, err)
	start(t, w.east)
	w.export(t)
	check := w.watch(t)
	must(t, restore(t.Context()))
	w.awaitHeld(t, heldServices, v1alpha1.ServiceImportReasonHeldByExporter)
	// The next agent goes on holding.
	w.east.Stop()
	start(t, w.east)
	w.export(t)
	w.awaitHeld(t, 0, "")
	check()
}

func (w *withdrawals) kindDeleted(t *testing.T) {
	check := w.watch(t)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, w.east.Client.Get(t.Context(), client.ObjectKey{Name: "serviceexports.multicluster.x-k8s.io"}, crd))
	must(t, w.east.Client.Delete(t.Context(), crd.DeepCopy()))
	w.awaitHeld(t, heldServices, v1alpha1.ServiceImportReasonHeldByExporter)
	w.east.Stop()
	startUnready(t, w.east, "could not find the requested resource")
	w.awaitHeld(t, heldServices, v1alpha1.ServiceImportReasonHeldByExporter)
	crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Name, Labels: crd.Labels, Annotations: crd.Annotations}
	harness.Eventually(t, "the CRD is created again", func() error { return w.east.Client.Create(t.Context(), crd.DeepCopy()) })
	harness.Eventually(t, "the kind is served again", func() error {
		return w.east.Client.List(t.Context(), &mcsv1beta1.ServiceExportList{})
	})
	w.export(t)
	w.awaitHeld(t, 0, "")
	check()
}

func (w *withdrawals) deletedByUser(t *testing.T) {
	for i := range heldServices {
		w.east.Unexport(t, w.ns, serviceName(i))
	}
	awaitImports(t, w.west, w.ns, nil)
}

// Withdrawals are not held for ever. The hold is observed with its usual length, and ends with the
// next agent: on a busy machine one of seconds could end before all imports say that they are held.
func (w *withdrawals) holdEnds(t *testing.T) {
	w.export(t)
	w.east.Stop()
	w.deleteExports(t)
	start(t, w.east)
	w.awaitHeld(t, heldServices, v1alpha1.ServiceImportReasonHeldByExporter)
	w.east.Stop()
	w.east.Agent.WithdrawalHold = 5 * time.Second
	start(t, w.east)
	awaitImports(t, w.west, w.ns, nil)
	awaitOnBroker(t, w.Fleet, w.ns, 0)
}

// deleteExports deletes all exports of east and waits until the cache of its API server shows none:
// an agent that starts lists from there, and would see the watch delete what the list still had.
func (w *withdrawals) deleteExports(t *testing.T) {
	t.Helper()
	must(t, w.east.Client.DeleteAllOf(t.Context(), &mcsv1beta1.ServiceExport{}, client.InNamespace(w.ns)))
	fromCache := &client.ListOptions{Namespace: w.ns, Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	harness.Eventually(t, "the API server's cache shows no exports", func() error {
		var exports mcsv1beta1.ServiceExportList
		err := w.east.Client.List(t.Context(), &exports, fromCache)
		if err == nil && len(exports.Items) > 0 {
			err = fmt.Errorf("it shows %d", len(exports.Items))
		}
		return err
	})
}

func (w *withdrawals) leaves(t *testing.T) {
	w.export(t)
	w.east.Create(t, userConfig())
	_, err := brokeradmin.Leave(t.Context(), w.east.Client)
	must(t, err)
	awaitImports(t, w.west, w.ns, nil)
}

// startUnready starts a member's agent with other options, waits until it has logged why it is not
// ready, and checks that it is not.
func startUnready(t *testing.T, m *fleet.Member, why string, change ...func(*agent.Options)) {
	t.Helper()
	options := m.Agent
	t.Cleanup(func() { m.Agent = options })
	m.Agent.ProbeAddress = freeAddress(t)
	for _, c := range change {
		c(&m.Agent)
	}
	start(t, m)
	harness.Eventually(t, "the agent is not ready and says why", func() error {
		log, err := m.Log()
		if err != nil {
			return err
		}
		if !strings.Contains(log, "the agent is not ready") || !strings.Contains(log, why) {
			return errors.New("its log does not say so")
		}
		response, err := http.Get("http://" + m.Agent.ProbeAddress + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusInternalServerError {
			return fmt.Errorf("its readiness is %s", response.Status)
		}
		return nil
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, l.Close()) }()
	return l.Addr().String()
}

// An agent that may not read ServiceExports when it starts does not take that for an empty cluster.
func TestAgentThatCannotReadItsExports(t *testing.T) {
	f := clusterset(t)
	w := newWithdrawals(t, f, f.Members[2], f.Members[1])
	w.export(t)
	check := w.watch(t)
	const user = "without-exports"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{
			"", "discovery.k8s.io", "coordination.k8s.io", "about.k8s.io", "multicluster.k8s.io", "networking.k8s.io", "events.k8s.io",
		}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports", "serviceimports/status"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	w.east.Create(t, role, binding)
	w.east.Stop()
	t.Cleanup(func() { w.east.Stop(); start(t, w.east) })
	startUnready(t, w.east, "serviceexports.multicluster.x-k8s.io is forbidden", func(o *agent.Options) {
		o.Local = rest.CopyConfig(o.Local)
		o.Local.Impersonate.UserName = user
	})
	harness.Consistently(t, "nothing is withdrawn", observationPeriod, func() error {
		names, err := f.OnBroker(client.MatchingLabels{v1alpha1.LabelServiceNamespace: w.ns})
		if err == nil && len(names) != 3*heldServices {
			err = fmt.Errorf("the broker has %v", names)
		}
		return err
	})
	check()
}

// The broker has lost all records of a cluster whose agent does not run, and the agent of an
// importer starts. It keeps its imports, for a while.
func (w *withdrawals) brokerLostRecords(t *testing.T) {
	east, west, other := w.east, w.west, w.Members[0]
	w.export(t)
	shared := serviceName(heldServices)
	serve(t, east, w.ns, shared, "10.1.9.9")
	other.Namespace(t, w.ns)
	serve(t, other, w.ns, shared, "10.3.9.9")
	west.AwaitImport(t, w.ns, shared, sources{"east": {"10.1.9.9"}, "north": {"10.3.9.9"}})
	lose := func() {
		t.Helper()
		west.Stop()
		east.Stop()
		for _, kind := range []client.Object{&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}} {
			must(t, w.Admin.DeleteAllOf(t.Context(), kind, client.InNamespace(objects.DefaultNamespace),
				client.MatchingLabels{v1alpha1.LabelServiceNamespace: w.ns, mcsv1beta1.LabelSourceCluster: "east"}))
		}
	}
	check := w.watch(t)
	lose()
	start(t, west)
	harness.Eventually(t, "the imports say that records were lost", func() error {
		return w.checkSaid(heldServices, v1alpha1.ServiceImportReasonRecordsLost)
	})
	// Another exporter of the same service is not affected; the silent one is dropped there.
	changeEndpoints(t, other, w.ns, shared, "10.3.9.8")
	west.AwaitImport(t, w.ns, shared, sources{"north": {"10.3.9.8"}})
	start(t, east)
	west.AwaitImport(t, w.ns, shared, sources{"east": {"10.1.9.9"}, "north": {"10.3.9.8"}})
	w.awaitHeld(t, 0, "")
	check()

	lose()
	west.Agent.WithdrawalHold = 5 * time.Second
	start(t, west)
	awaitImports(t, west, w.ns, map[string]sources{shared: {"north": {"10.3.9.8"}}})
	start(t, east)
	other.Unexport(t, w.ns, shared)
	east.Unexport(t, w.ns, shared)
}
