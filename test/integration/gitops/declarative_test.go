package gitops_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const usualCorefile = `.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       fallthrough in-addr.arpa ip6.arpa
    }
    forward . /etc/resolv.conf
    reload
}
`

// Broker and members consist of what was applied, and of what agents make of it. The agents wait
// while there is no invitation. After many events, nothing that was applied has changed.
func TestAppliedManifestsMakeAClusterset(t *testing.T) {
	cps := harness.Fresh(t, 3)
	b := newBroker(t, cps[0])
	east, west := memberOf(t, cps[1], "east"), memberOf(t, cps[2], "west")
	east.Create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: corefile.ConfigMap.Namespace, Name: corefile.ConfigMap.Name},
		Data:       map[string]string{corefile.Key: usualCorefile},
	})
	manifests := rendered(t, nil) // east gets its invitation apart from it
	apply(t, east.Client, manifests)
	ns := fleet.NewNamespace(t, east, west)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	log, stop := runAgent(t, cps[1])
	log.await(t, "waiting for an invitation", "seamark broker invite ID -o yaml")
	c := east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse,
		v1alpha1.ServiceExportReasonNotMember)
	if !strings.Contains(c.Message, "apply an invitation") {
		t.Errorf("the export of a cluster without an invitation says: %s", c.Message)
	}
	invitation := asSecret(t, b.invite(t, "east"))
	apply(t, east.Client, invitation)
	east.AwaitExported(t, ns, "web")
	for name, want := range map[string]string{
		aboutv1beta1.PropertyClusterID: "east", aboutv1beta1.PropertyClusterIDOld: "east", aboutv1beta1.PropertyClusterSet: "clusterset",
	} {
		harness.Eventually(t, "ClusterProperty "+name, func() error {
			p := &aboutv1beta1.ClusterProperty{}
			err := east.Client.Get(context.Background(), types.NamespacedName{Name: name}, p)
			if err == nil && p.Spec.Value != want {
				err = fmt.Errorf("it is %s", p.Spec.Value)
			}
			return err
		})
	}
	// The invitation of west is a value of the chart.
	m := b.invite(t, "west")
	ofWest := rendered(t, map[string]any{"invitation": map[string]any{
		"clusterID": m.ClusterID, "clusterSet": m.ClusterSet, "namespace": m.Namespace, "server": m.Server, "token": m.Token,
		"caData": base64.StdEncoding.EncodeToString(m.CAData),
	}})
	apply(t, west.Client, ofWest)
	_, stopWest := runAgent(t, cps[2])
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	t.Run("cluster DNS", func(t *testing.T) { checkClusterDNS(t, east) })
	t.Run("health", func(t *testing.T) { checkHealth(t, b, east, ns) })

	events(t, cps, ns, east, west)
	stop()
	_, stop = runAgent(t, cps[1])
	storeRenewed(t, b, east)
	for name, check := range map[string]struct {
		m    *fleet.Member
		objs []*unstructured.Unstructured
	}{"east": {east, append(manifests, invitation...)}, "west": {west, ofWest}} {
		if changes := drift(t, check.m.Client, check.objs); len(changes) > 0 {
			t.Errorf("%s: %s", name, strings.Join(changes, "\n"))
		}
	}
	if changes := drift(t, b.admin, b.manifests); len(changes) > 0 {
		t.Errorf("broker: %s", strings.Join(changes, "\n"))
	}
	stop()
	stopWest()
}

// checkClusterDNS checks that the agent adds its block to the cluster's DNS and restores it, and
// that everything else stays.
func checkClusterDNS(t *testing.T, m *fleet.Member) {
	service := &corev1.Service{}
	must(t, m.Client.Get(context.Background(), types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.DNSService}, service))
	harness.Eventually(t, "the cluster's DNS forwards the clusterset's names", func() error {
		config := &corev1.ConfigMap{}
		if err := m.Client.Get(context.Background(), corefile.ConfigMap, config); err != nil {
			return err
		}
		text := config.Data[corefile.Key]
		without, err := corefile.Remove(text)
		switch {
		case err != nil:
			return err
		case without != usualCorefile:
			return fmt.Errorf("the rest is\n%s", without)
		case !containsAll(text, "clusterset.local:53 {", "243.in-addr.arpa:53", "forward . "+strings.Join(service.Spec.ClusterIPs, " ")+"\n"):
			return fmt.Errorf("it is\n%s", text)
		}
		return nil
	})
}

// events is an hour's worth of them: services come and go and conflict, pods move, and users change
// what agents own.
func events(t *testing.T, cps []*controlplane.ControlPlane, ns string, east, west *fleet.Member) {
	t.Helper()
	for i := range 10 {
		name := fmt.Sprintf("svc-%d", i)
		for _, m := range []*fleet.Member{east, west} {
			m.Serve(t, fleet.NewService(ns, name), fmt.Sprintf("10.%d.1.%d", map[string]int{"east": 1, "west": 2}[m.ID], i+1))
			m.Export(t, ns, name)
		}
	}
	for i := range 10 {
		name := fmt.Sprintf("svc-%d", i)
		want := map[string][]string{"east": {fmt.Sprintf("10.1.1.%d", i+1)}, "west": {fmt.Sprintf("10.2.1.%d", i+1)}}
		east.AwaitImport(t, ns, name, want)
		west.AwaitImport(t, ns, name, want)
	}
	fleet.Update(t, east, ns, "svc-0-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Addresses[0] = "10.1.9.9"
	})
	west.AwaitImport(t, ns, "svc-0", map[string][]string{"east": {"10.1.9.9"}, "west": {"10.2.1.1"}})
	fleet.Update(t, west, ns, "svc-1", &corev1.Service{}, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	west.Awaits(t, ns, "svc-1", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue,
		mcsv1beta1.ServiceExportReasonPortConflict)
	for i := 2; i < 10; i++ {
		east.Unexport(t, ns, fmt.Sprintf("svc-%d", i))
		west.Unexport(t, ns, fmt.Sprintf("svc-%d", i))
	}
	for i := 2; i < 10; i++ {
		east.AwaitNoImport(t, ns, fmt.Sprintf("svc-%d", i))
	}
	must(t, cps[0].Stop())
	must(t, cps[0].Restart(context.Background()))
	fleet.Update(t, east, ns, "svc-0-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Addresses[0] = "10.1.9.10"
	})
	west.AwaitImport(t, ns, "svc-0", map[string][]string{"east": {"10.1.9.10"}, "west": {"10.2.1.1"}})
}

// storeRenewed stores a token as the agent does when it has renewed its own, which takes it hours.
func storeRenewed(t *testing.T, b *broker, m *fleet.Member) {
	t.Helper()
	before, err := stored(m.Client)
	must(t, err)
	renewed := b.renewLater(t, m.ID, before.Token)
	fleet.Update(t, m, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) {
		s.Data["token"] = []byte(renewed.Token)
	})
}
