package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

func TestMain(m *testing.M) { harness.Main(m) }

func newBroker(t *testing.T, cp *controlplane.ControlPlane) *simulated.Broker {
	t.Helper()
	admin, err := brokeradmin.NewClient(cp.DirectConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := brokeradmin.Deploy(t.Context(), admin, brokeradmin.DeployOptions{}); err != nil {
		t.Fatal(err)
	}
	return &simulated.Broker{Admin: admin, Config: cp.DirectConfig(), Traffic: simulated.NewTraffic()}
}

// join starts a member, which ends with the test.
func join(t *testing.T, broker *simulated.Broker, number int) *simulated.Member {
	t.Helper()
	m, err := broker.Join(t.Context(), number)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// A simulated member publishes to a real broker, and another one imports from it.
func TestMembersExchangeServices(t *testing.T) {
	broker := newBroker(t, harness.Clusters(t, 1)[0])
	var members []*simulated.Member
	for i := range 3 {
		members = append(members, join(t, broker, i))
	}
	for _, m := range members[:2] {
		if err := m.CreateNamespace(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
	}
	if err := members[0].Export(t.Context(), "shop", "web", members[0].PodIP(0)); err != nil {
		t.Fatal(err)
	}
	si := &mcsv1beta1.ServiceImport{}
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	harness.Eventually(t, "the second member imports the service", func() error {
		if err := members[1].Client.Get(context.Background(), key, si); err != nil {
			return err
		}
		if len(si.Spec.IPs) != 1 {
			return fmt.Errorf("no clusterset IP yet: %+v", si.Spec)
		}
		return nil
	})
	if broker.Traffic.Received() == 0 {
		t.Error("no traffic was counted")
	}
}

// Members reach each other's beacons, and no longer use a cluster that is lost long before its
// lease expires.
func TestBeaconsAnswer(t *testing.T) {
	broker := newBroker(t, harness.Clusters(t, 1)[0])
	broker.LeaseDuration = 10 * time.Minute
	var members []*simulated.Member
	for i := range 3 {
		m := join(t, broker, 10+i) // the broker has the members of other tests, too
		if err := m.CreateNamespace(t.Context(), "store"); err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	want := simulated.Imports{"web": {}}
	for _, m := range members[:2] {
		if err := m.Export(t.Context(), "store", "web", m.PodIP(0)); err != nil {
			t.Fatal(err)
		}
		want["web"][m.ID] = []string{m.PodIP(0)}
	}
	imported := func(want simulated.Imports) func() error {
		return func() error {
			have, err := simulated.ReadImports(context.Background(), members[2].Client, "store")
			if err == nil && !reflect.DeepEqual(have, want) {
				err = fmt.Errorf("imports are %v, want %v", have, want)
			}
			return err
		}
	}
	harness.Eventually(t, "the third member imports from both", imported(want))
	// Only a beacon that answered and stopped proves anything.
	harness.Eventually(t, "the third member hears both", func() error {
		for _, m := range members[:2] {
			if !members[2].Hears(m) {
				return errors.New("no answer of " + m.ID)
			}
		}
		return nil
	})
	members[0].Lose()
	delete(want["web"], members[0].ID)
	harness.Eventually(t, "the third member leaves out the lost one", imported(want))
}
