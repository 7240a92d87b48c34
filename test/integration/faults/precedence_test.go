package faults_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// The oldest exporter of a service is headless and dies. While it decides, the living exporter is
// left out. After a while the living one decides, and it still does when all living agents restart
// and when the other returns. Where the living one has no endpoints, nothing is decided, and
// another headless exporter goes on serving.
func TestLivingExportersDecide(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	headless := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	east.Serve(t, fleet.NewService(ns, "db", headless), "10.1.0.1")
	east.Export(t, ns, "db")
	north.AwaitImport(t, ns, "db", sources{"east": {"10.1.0.1"}})
	serve(t, west, ns, "db", "10.2.0.1")
	west.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
	must(t, north.CheckAddresses(ns, "db", sources{"east": {"10.1.0.1"}}))
	east.Serve(t, fleet.NewService(ns, "cache", headless), "10.1.0.2")
	east.Export(t, ns, "cache")
	west.AwaitImport(t, ns, "cache", sources{"east": {"10.1.0.2"}})
	serve(t, west, ns, "cache")
	west.Awaits(t, ns, "cache", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
	time.Sleep(time.Second) // ages are whole seconds: north must be the youngest
	north.Serve(t, fleet.NewService(ns, "cache", headless), "10.3.0.2")
	north.Export(t, ns, "cache")
	west.AwaitImport(t, ns, "cache", sources{"east": {"10.1.0.2"}, "north": {"10.3.0.2"}})

	east.Stop()
	t.Cleanup(func() { east.Stop(); start(t, east) })
	north.AwaitImport(t, ns, "db", sources{"west": {"10.2.0.1"}})
	decided := awaitClusterSetIP(t, north, ns, "db")
	west.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported)

	north.Awaits(t, ns, "cache", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
	serving := sources{"north": {"10.3.0.2"}}
	stays := func() error {
		si, err := north.Import(ns, "db")
		if err != nil {
			return err
		}
		if si.Spec.Type != decided.Spec.Type || !slices.Equal(si.Spec.IPs, decided.Spec.IPs) {
			return fmt.Errorf("it is %s %v, and was %s %v", si.Spec.Type, si.Spec.IPs, decided.Spec.Type, decided.Spec.IPs)
		}
		if err := north.CheckAddresses(ns, "db", sources{"west": {"10.2.0.1"}}); err != nil {
			return err
		}
		return west.CheckAddresses(ns, "cache", serving)
	}
	for _, m := range []*fleet.Member{west, north} {
		m.Stop()
		start(t, m)
	}
	f.Consistently(t, "the service stays as it was when all living agents restart", observationPeriod, stays)

	start(t, east)
	east.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
	serving["east"] = []string{"10.1.0.2"}
	west.AwaitImport(t, ns, "cache", serving)
	harness.Eventually(t, "no member demotes east", func() error {
		members := &v1alpha1.ClusterList{}
		if err := f.Admin.List(context.Background(), members, client.InNamespace(objects.DefaultNamespace)); err != nil {
			return err
		}
		for i := range members.Items {
			if slices.Contains(members.Items[i].Status.Demoted, "east") {
				return fmt.Errorf("%s does", members.Items[i].Name)
			}
		}
		return nil
	})
	f.Consistently(t, "the service stays as it was", observationPeriod, stays)
	if si, err := north.Import(ns, "db"); err != nil || si.UID != decided.UID {
		t.Errorf("the ServiceImport was created anew: %v", err)
	}
	// East takes part again when it agrees.
	must(t, client.IgnoreNotFound(east.Client.Delete(context.Background(), fleet.NewService(ns, "db"))))
	east.Create(t, fleet.NewService(ns, "db"))
	north.AwaitImport(t, ns, "db", sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}})
}

// The oldest exporter of a service is headless and is cut off from the broker, with its agent
// running. The living one decides meanwhile, and nothing changes when the other is connected again.
func TestReturnFromACutDisturbsNothing(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	broker := ownLink(t, f, north)
	north.Serve(t, fleet.NewService(ns, "db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), "10.3.0.1")
	north.Export(t, ns, "db")
	east.AwaitImport(t, ns, "db", sources{"north": {"10.3.0.1"}})
	serve(t, west, ns, "db", "10.2.0.1")
	west.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)

	broker.cut()
	east.AwaitImport(t, ns, "db", sources{"west": {"10.2.0.1"}})
	decided := awaitClusterSetIP(t, east, ns, "db")
	broker.restore()
	living := &fleet.Fleet{Admin: f.Admin, Members: []*fleet.Member{east, west}} // north is late: it was cut off
	living.Consistently(t, "the service stays as it was decided", 2*observationPeriod, func() error {
		si, err := east.Import(ns, "db")
		if err != nil {
			return err
		}
		if si.UID != decided.UID || si.Spec.Type != decided.Spec.Type || !slices.Equal(si.Spec.IPs, decided.Spec.IPs) {
			return fmt.Errorf("it is %s %v, and was %s %v", si.Spec.Type, si.Spec.IPs, decided.Spec.Type, decided.Spec.IPs)
		}
		return east.CheckAddresses(ns, "db", sources{"west": {"10.2.0.1"}})
	})
	north.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
}

func awaitClusterSetIP(t *testing.T, m *fleet.Member, ns, name string) (si *mcsv1beta1.ServiceImport) {
	t.Helper()
	harness.Eventually(t, name+" has a clusterset IP in "+m.ID, func() (err error) {
		if si, err = m.Import(ns, name); err == nil && (si.Spec.Type != mcsv1beta1.ClusterSetIP || len(si.Spec.IPs) == 0) {
			err = fmt.Errorf("it is %s %v", si.Spec.Type, si.Spec.IPs)
		}
		return err
	})
	return si
}
