package simulated_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A simulated member publishes to a real broker, and another one imports from it.
func TestMembersExchangeServices(t *testing.T) {
	cp := harness.Clusters(t, 1)[0]
	admin, err := brokeradmin.NewClient(cp.DirectConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := brokeradmin.Deploy(t.Context(), admin, brokeradmin.DeployOptions{}); err != nil {
		t.Fatal(err)
	}
	broker := &simulated.Broker{Admin: admin, Config: cp.DirectConfig(), Traffic: simulated.NewTraffic()}
	var members []*simulated.Member
	for i := range 3 {
		m, err := broker.Join(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
		t.Cleanup(m.Stop)
		members = append(members, m)
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
