package trust

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A member may write aggregates of services that it does not export: a policy cannot look up its
// records. Nothing depends on them: honest exporters get and keep their clusterset IPs, and the
// aggregate is corrected.
func TestHostileAggregatesChangeNothing(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f := fleet.Started(t, cps[0], cps, fleet.Options{DataPlanes: map[string]v1alpha1.DataPlane{"east": v1alpha1.DataPlaneNone}})
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east)
	service := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }
	secret := &corev1.Secret{}
	must(t, west.Client.Get(t.Context(), types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret))
	membership, err := objects.MembershipFrom(secret)
	must(t, err)
	west.Stop()
	attacker, err := client.New(membership.Config(), client.Options{Scheme: brokeradmin.NewScheme()})
	must(t, err)
	frozen := func(si *mcsv1beta1.ServiceImport) *mcsv1beta1.ServiceImport {
		si.Annotations = map[string]string{v1alpha1.AnnotationMergeVersion: "999", v1alpha1.AnnotationAllocatedBy: "west"}
		return si
	}
	exported := func(name string) string {
		t.Helper()
		east.Serve(t, fleet.NewService(ns, name), "10.1.0.1")
		east.Export(t, ns, name)
		return awaitAddress(t, f, east, service(name), "")
	}

	run := exported("run")
	for name, ips := range map[string][]string{"none": nil, "taken": {run}, "outside": {"10.0.0.1"}, "ghost": {"243.0.64.9"}} {
		must(t, attacker.Create(t.Context(), frozen(aggregate("west", service(name), ips...))))
	}
	seen := map[string]bool{run: true}
	for _, name := range []string{"none", "taken", "outside"} {
		if ip := exported(name); seen[ip] {
			t.Errorf("%s got %s, which another service has", name, ip)
		} else {
			seen[ip] = true
		}
	}
	must(t, change(t.Context(), attacker, aggregate("west", service("run")), func(si *mcsv1beta1.ServiceImport) {
		label(frozen(si), v1alpha1.LabelWrittenBy, "west")
		si.Spec.IPs, si.Spec.Ports = []string{"243.0.64.66"}, []mcsv1beta1.ServicePort{}
	}))
	awaitAddress(t, f, east, service("run"), run)

	_, err = brokeradmin.RemoveMember(t.Context(), f.Admin, objects.DefaultNamespace, "west")
	must(t, err)
	si := aggregate("", service("ghost"))
	if err := f.Admin.Get(t.Context(), client.ObjectKeyFromObject(si), si); !apierrors.IsNotFound(err) {
		t.Errorf("the aggregate that west left is still there: %v", err)
	}
	awaitAddress(t, f, east, service("run"), run)
}

// awaitAddress waits until an exporter's service is ready with a clusterset IP, which the aggregate
// shows too, and returns it. If want is not empty it must be that one.
func awaitAddress(t *testing.T, f *fleet.Fleet, m *fleet.Member, service types.NamespacedName, want string) string {
	t.Helper()
	m.AwaitExported(t, service.Namespace, service.Name)
	var ips []string
	harness.Eventually(t, "clusterset IP of "+service.String(), func() error {
		si, err := m.Import(service.Namespace, service.Name)
		if err != nil {
			return err
		}
		shown := aggregate("", service)
		if err := f.Admin.Get(t.Context(), client.ObjectKeyFromObject(shown), shown); err != nil {
			return err
		}
		ips = si.Spec.IPs
		if len(ips) != 1 || !slices.Equal(shown.Spec.IPs, ips) || len(shown.Spec.Ports) != 1 ||
			shown.Annotations[v1alpha1.AnnotationAllocatedBy] != m.ID || shown.Annotations[v1alpha1.AnnotationMergeVersion] == "999" {
			return fmt.Errorf("the import has %v, the aggregate shows %v with %v", ips, shown.Spec, shown.Annotations)
		}
		return nil
	})
	if want != "" && ips[0] != want {
		t.Errorf("%s had %s and has %s", service, want, ips[0])
	}
	return ips[0]
}
