// Package dataplane_test checks what makes an imported service reachable, on real API servers:
// clusterset IPs, derived Services and the objects that data planes read. Traffic is tested in
// package proxy and end to end.
package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) {
	dnsprocess.RunIfChild()
	harness.Main(m)
}

var (
	sharedOnce sync.Once
	shared     *fleet.Fleet
	errShared  error

	eastBlock  = netip.MustParsePrefix("243.7.0.0/16")
	northBlock = netip.MustParsePrefix("243.9.0.0/30") // two addresses
)

// clusterset returns the members that the tests of this package share: east derives Services, west
// runs proxies, and north has no data plane of Seamark's and a block of two addresses.
func clusterset(t *testing.T) (east, west, north *fleet.Member) {
	t.Helper()
	cps := harness.Clusters(t, 3)
	sharedOnce.Do(func() {
		shared, errShared = fleet.New(context.Background(), cps[0], cps, fleet.Options{
			DataPlanes: map[string]v1alpha1.DataPlane{"west": v1alpha1.DataPlaneNFTables, "north": v1alpha1.DataPlaneNone},
			Blocks:     map[string][]netip.Prefix{"east": {eastBlock}, "north": {northBlock}},
		})
		if errShared == nil {
			errShared = shared.Start()
		}
	})
	if errShared != nil {
		t.Fatal(errShared)
	}
	return shared.Members[0], shared.Members[1], shared.Members[2]
}

// derived returns the Service that a member derived from web.
func derived(m *fleet.Member, ns string) (*corev1.Service, error) {
	svc := &corev1.Service{}
	return svc, m.Client.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: objects.DerivedServiceName("web")}, svc)
}

func aggregateOf(f *fleet.Fleet, ns, name string) (*mcsv1beta1.ServiceImport, error) {
	si := &mcsv1beta1.ServiceImport{}
	key := types.NamespacedName{Namespace: objects.DefaultNamespace,
		Name: objects.AggregateName(types.NamespacedName{Namespace: ns, Name: name})}
	return si, f.Admin.Get(context.Background(), key, si)
}

// waitAllocated waits for the clusterset IPs of a service.
func waitAllocated(t *testing.T, f *fleet.Fleet, ns, name string, count int) *mcsv1beta1.ServiceImport {
	t.Helper()
	var si *mcsv1beta1.ServiceImport
	harness.Eventually(t, fmt.Sprintf("clusterset IPs of %s/%s", ns, name), func() (err error) {
		if si, err = aggregateOf(f, ns, name); err != nil {
			return err
		}
		if len(si.Spec.IPs) != count {
			return fmt.Errorf("has the addresses %v, want %d", si.Spec.IPs, count)
		}
		return nil
	})
	return si
}

// waitReachable waits until the member's ServiceImport is ready and has count addresses.
func waitReachable(t *testing.T, m *fleet.Member, ns, name string, count int) *mcsv1beta1.ServiceImport {
	t.Helper()
	var si *mcsv1beta1.ServiceImport
	harness.Eventually(t, fmt.Sprintf("%s/%s reachable in %s", ns, name, m.ID), func() (err error) {
		if si, err = m.Import(ns, name); err != nil {
			return err
		}
		c := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if c == nil || c.Status != metav1.ConditionTrue || len(si.Spec.IPs) != count || len(si.Spec.IPFamilies) != max(count, 1) {
			return fmt.Errorf("ips %v, families %v, ready %+v", si.Spec.IPs, si.Spec.IPFamilies, c)
		}
		return nil
	})
	return si
}

// waitDerived waits until check succeeds for the Service derived from web, and fails the test if
// that Service was recreated.
func waitDerived(t *testing.T, m *fleet.Member, ns string, uid types.UID, check func(*corev1.Service) error) *corev1.Service {
	t.Helper()
	var svc *corev1.Service
	harness.Eventually(t, fmt.Sprintf("derived Service of %s/web in %s", ns, m.ID), func() (err error) {
		if svc, err = derived(m, ns); err != nil {
			return err
		}
		return check(svc)
	})
	if uid != "" && svc.UID != uid {
		t.Errorf("the derived Service of %s/web was made anew rather than changed", ns)
	}
	return svc
}

func waitGone(t *testing.T, what string, get func() (client.Object, error)) {
	t.Helper()
	harness.Eventually(t, what+" gone", func() error {
		if _, err := get(); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("still there"), err)
		}
		return nil
	})
}

// startWithRanges starts a control plane for each service range.
func startWithRanges(t *testing.T, ranges ...string) []*controlplane.ControlPlane {
	t.Helper()
	cps := make([]*controlplane.ControlPlane, len(ranges))
	for i, r := range ranges {
		cps[i] = harness.Fresh(t, 1, func(o *controlplane.Options) { o.ServiceCIDR = r })[0]
	}
	return cps
}
