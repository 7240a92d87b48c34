package chart

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/install/chart"
)

// packaged returns the chart as users of helm get it.
func packaged(t *testing.T) *helmchart.Chart {
	t.Helper()
	path, err := chart.Package(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// helmInstall does what helm install does.
func (b *fixture) helmInstall(t *testing.T, cluster string, values map[string]any, change func(*action.Install)) error {
	t.Helper()
	i := action.NewInstall(b.helm(cluster))
	i.ReleaseName, i.Namespace, i.CreateNamespace, i.WaitStrategy = chart.ReleaseName, chart.Namespace, true, kube.HookOnlyStrategy
	change(i)
	_, err := i.Run(packaged(t), values)
	return err
}

// With helm, CRDs, policies and workloads come from the chart. The membership comes from join,
// before or after the installation.
func TestInstallWithHelm(t *testing.T) {
	b := newFixture(t, "east", "west")
	b.must("broker deploy --context west")
	t.Run("helm first", func(t *testing.T) {
		if err := b.helmInstall(t, "east", map[string]any{"agent": map[string]any{"replicas": 1}}, func(*action.Install) {}); err != nil {
			t.Fatalf("helm install: %v", err)
		}
		get(b, "east", "", "serviceexports.multicluster.x-k8s.io", &apiextensionsv1.CustomResourceDefinition{})
		get(b, "east", "", "seamark-identity-locked", &admissionregistrationv1.ValidatingAdmissionPolicy{})
		b.must("join --no-install --broker-context west --context east --clusterid east")
		if j := b.join("east", "west", ""); j.Release.Revision != 2 || j.Release.Action != chart.Upgraded {
			// join adds the data plane to the values, which helm left at the default.
			t.Errorf("joining what helm installed: %+v", j.Release)
		}
		if agent := get(b, "east", chart.Namespace, "seamark-agent", &appsv1.Deployment{}); *agent.Spec.Replicas != 1 {
			t.Errorf("the agent has %d replicas, helm chose 1", *agent.Spec.Replicas)
		}
		b.must("leave --context east --broker-context west")
		err := b.client("east").Get(t.Context(), types.NamespacedName{Namespace: chart.Namespace, Name: "seamark-agent"}, &appsv1.Deployment{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("after leave the agent still exists (%v)", err)
		}
		get(b, "east", "", chart.Namespace, &corev1.Namespace{}) // helm created it, so leave must keep it
	})
	t.Run("join first", func(t *testing.T) {
		b.must("join --no-install --broker-context west --context west --clusterid west")
		err := b.helmInstall(t, "west", nil, func(*action.Install) {})
		if err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
			t.Errorf("helm install over the policies of join: %v", err)
		}
		if err := b.helmInstall(t, "west", nil, func(i *action.Install) { i.TakeOwnership, i.ForceConflicts = true, true }); err != nil {
			t.Errorf("helm install --take-ownership --force-conflicts: %v", err)
		}
		u := action.NewUninstall(b.helm("west"))
		u.WaitStrategy = kube.HookOnlyStrategy
		if _, err := u.Run(chart.ReleaseName); err != nil {
			t.Errorf("helm uninstall: %v", err)
		}
		o := b.must("leave --context west --broker-context west")
		if strings.Contains(o.Stdout, "uninstalled") {
			t.Errorf("leave after helm uninstall says:\n%s", o.Stdout)
		}
	})
	t.Run("another namespace", func(t *testing.T) {
		err := b.helmInstall(t, "west", nil, func(i *action.Install) { i.Namespace = "elsewhere" })
		if err == nil || !strings.Contains(err.Error(), "install with --namespace seamark-system") {
			t.Errorf("helm install elsewhere: %v", err)
		}
	})
}
