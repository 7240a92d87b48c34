package exporters

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

// writesPerExporter is how many writes one exporter of a service may cost on average, whatever the
// number of the others: to join one, and to leave one that may fail once before. The rest is for
// machines so slow that an exporter takes those before it for stopped.
const writesPerExporter = 3

// many is the larger number of exporters. 500 take ten minutes of two cores with the race detector:
// go test ./test/integration/exporters -exporters.many=500
var many = flag.Int("exporters.many", 80, "the larger number of exporters of one service")

// N exporters of one service cost O(N) writes in all, also if all join or leave at the same moment.
func TestWritesGrowWithTheNumberOfExporters(t *testing.T) {
	for _, members := range []int{20, *many} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			b := newBroker(t, members)
			b.forAll(t, func(id string) error { return b.admin.Create(t.Context(), record(id)) })
			for _, id := range b.ids {
				b.start(t, id)
			}
			b.await(t, "all are listed", members)
			b.check(t, "join")

			must(t, b.admin.DeleteAllOf(t.Context(), &v1alpha1.ExportRecord{}, client.InNamespace(namespace)))
			b.await(t, "the aggregate is gone", 0)
			b.check(t, "leave")
		})
	}
}

// On a broker that was deployed by an earlier version members may not patch the list. They update
// it.
func TestMembersWithoutTheRightToPatch(t *testing.T) {
	b := newBroker(t, 5)
	role := &rbacv1.Role{}
	must(t, b.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: brokeradmin.MemberRole}, role))
	for i, rule := range role.Rules {
		if slices.Contains(rule.Resources, "serviceimports/status") {
			role.Rules[i].Verbs = []string{"update"}
		}
	}
	must(t, b.admin.Update(t.Context(), role))
	b.forAll(t, func(id string) error { return b.admin.Create(t.Context(), record(id)) })
	for _, id := range b.ids {
		b.start(t, id)
	}
	b.await(t, "all are listed", len(b.ids))
	must(t, b.admin.DeleteAllOf(t.Context(), &v1alpha1.ExportRecord{}, client.InNamespace(namespace)))
	b.await(t, "the aggregate is gone", 0)
}

// await waits until the aggregate lists so many exporters, each once. One without exporters must
// not exist.
func (b *broker) await(t *testing.T, what string, exporters int) {
	t.Helper()
	si, shown := &mcsv1beta1.ServiceImport{}, -1
	for shown != exporters { // each exporter waits for its turn, so only progress is bounded in time
		harness.Eventually(t, what, func() error {
			err := b.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: objects.AggregateName(web)}, si)
			if apierrors.IsNotFound(err) {
				shown = 0
				return nil
			}
			listed := map[string]bool{}
			for _, c := range si.Status.Clusters {
				listed[c.Cluster] = true
			}
			if len(listed) != len(si.Status.Clusters) {
				t.Fatalf("an exporter is listed twice: %v", si.Status.Clusters)
			}
			if err == nil && len(listed) == max(shown, 0) {
				return fmt.Errorf("%d exporters are listed", len(listed))
			}
			if shown = len(listed); shown == 0 {
				shown = -1 // it still exists
			}
			return err
		})
	}
}

func (b *broker) check(t *testing.T, what string) {
	t.Helper()
	writes, failed := b.counted()
	t.Logf("%d exporters %s at once: %d writes, of which %d failed", len(b.ids), what, writes, failed)
	if limit := int64(writesPerExporter * len(b.ids)); writes > limit {
		t.Errorf("%d writes so that %d exporters %s; want at most %d", writes, len(b.ids), what, limit)
	}
}
