package api

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

// Every member reads all Clusters, and renews a lease again and again: neither says who wrote which
// field, also after a member has written them.
func TestClustersAndLeasesHaveNoManagers(t *testing.T) {
	cp := harness.Clusters(t, 1)[0]
	admin := newClient(t, cp.Config())
	ns := harness.Namespace(t, cp)
	if _, err := brokeradmin.Deploy(t.Context(), admin, brokeradmin.DeployOptions{Namespace: ns}); err != nil {
		t.Fatal(err)
	}
	options := brokeradmin.InviteOptions{Namespace: ns, Server: cp.Config().Host, CAData: cp.Config().CAData}
	if _, err := brokeradmin.Invite(t.Context(), admin, "east", options); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "east"}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "east"}}
	read := func(obj client.Object) {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
	}
	read(cluster)
	cluster.Status.AgentVersion = "v1"
	if err := admin.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	read(lease)
	for range 2 {
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
		objects.ForgetManagers(lease)
		if err := admin.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	for _, obj := range []client.Object{cluster, lease} {
		read(obj)
		if managers := obj.GetManagedFields(); len(managers) > 0 {
			t.Errorf("%T has managers: %v", obj, managers)
		}
	}
}
