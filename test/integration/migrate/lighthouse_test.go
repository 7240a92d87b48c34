// Package migrate_test moves clusters from Submariner Lighthouse to Seamark: real agents of both on
// real API servers.
package migrate_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

func TestMain(m *testing.M) {
	dnsprocess.RunIfChild()
	harness.Main(m)
}

// checkFacts checks what these tests assume about the objects of Lighthouse's agents, with a
// service that two clusters export.
func checkFacts(t *testing.T, a *lighthouse.Agent, ns, name string, clusterIPs ...string) {
	t.Helper()
	si := awaitLighthouseImport(t, a, ns, name, "east", "west")
	if len(si.Labels) != 0 || len(si.Spec.IPs) != 0 || si.Spec.Type != mcsv1alpha1.ClusterSetIP {
		t.Errorf("the ServiceImport has labels %v, addresses %v, type %s; want no labels, no addresses, ClusterSetIP",
			si.Labels, si.Spec.IPs, si.Spec.Type)
	}
	if si.Annotations[v1alpha1.AnnotationUseClusterSetIPAlias] != "false" {
		t.Errorf("the ServiceImport has annotations %v, want %s=false, by which seamark-dns knows it",
			si.Annotations, v1alpha1.AnnotationUseClusterSetIPAlias)
	}
	var addresses []string
	for _, s := range lighthouseSlices(t, a, ns, name) {
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
	}
	if slices.Sort(addresses); !slices.Equal(addresses, slices.Sorted(slices.Values(clusterIPs))) {
		t.Errorf("%s has slices with %v, want the ClusterIPs %v", a.ID, addresses, clusterIPs)
	}
}

// exportWithLighthouse creates a Service, its slice and a ServiceExport in the version that
// Lighthouse's CRDs serve.
func exportWithLighthouse(t *testing.T, a *lighthouse.Agent, svc *corev1.Service, addresses ...string) *corev1.Service {
	t.Helper()
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	for _, obj := range []client.Object{svc, fleet.NewSlice(svc, "a", addresses...), export} {
		if err := a.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return svc
}

// awaitLighthouseImport waits until a cluster has the ServiceImport and a slice of each cluster.
func awaitLighthouseImport(t *testing.T, a *lighthouse.Agent, ns, name string, clusters ...string) *mcsv1alpha1.ServiceImport {
	t.Helper()
	si := &mcsv1alpha1.ServiceImport{}
	harness.Eventually(t, fmt.Sprintf("%s/%s imported in %s by Lighthouse", ns, name, a.ID), func() error {
		if err := a.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name}, si); err != nil {
			return err
		}
		if len(si.Status.Clusters) != len(clusters) {
			return fmt.Errorf("the status lists %v, want %v", si.Status.Clusters, clusters)
		}
		if got := lighthouseSlices(t, a, ns, name); len(got) != len(clusters) {
			return fmt.Errorf("there are %d slices, want one of each of %v", len(got), clusters)
		}
		return nil
	})
	return si
}

func lighthouseSlices(t *testing.T, a *lighthouse.Agent, ns, name string) []discoveryv1.EndpointSlice {
	t.Helper()
	list := &discoveryv1.EndpointSliceList{}
	labels := lighthouse.Slices()
	labels[mcsv1alpha1.LabelServiceName] = name
	if err := a.Client.List(t.Context(), list, client.InNamespace(ns), labels); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// An agent of Lighthouse that starts while its broker is away needs a restart, which the operator
// of these tests makes in place of a user: after outages of API servers its cluster exports again.
func TestLighthouseStartsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 2)
	west := lighthouse.New(t, cps[0], cps[1:], "west").Agents[0]
	operator := west.Install(t, "west")
	if err := operator.Start(t); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "Lighthouse's agent runs", func() error {
		if !operator.AgentRuns() {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	if err := cps[0].StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	operator.RestartAgent(t)
	harness.Eventually(t, "the agent has tried to reach the broker", func() error {
		log, err := os.ReadFile(west.LogPath())
		if err == nil && !bytes.Contains(log, []byte("Error accessing the broker API server")) {
			err = fmt.Errorf("its log has no such error")
		}
		return err
	})
	if err := cps[0].StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := harness.Namespace(t, cps[1])
	exportWithLighthouse(t, west, fleet.NewService(ns, "web"), "10.1.0.1")
	awaitLighthouseImport(t, west, ns, "web", "west")
}
