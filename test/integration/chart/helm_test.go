package chart

import (
	"bytes"
	"fmt"
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

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
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
		if err := b.helmInstall(t, "west", nil, func(*action.Install) {}); err != nil {
			t.Errorf("helm install over what join wrote: %v", err)
		}
		// A later version of the chart has another text of a policy.
		changed := packaged(t)
		for _, file := range changed.Templates {
			if file.Name == "templates/policies.yaml" {
				file.Data = bytes.Replace(file.Data, []byte("is the id ("), []byte("is the identity ("), 1)
			}
		}
		upgrade := action.NewUpgrade(b.helm("west"))
		upgrade.Namespace, upgrade.WaitStrategy = chart.Namespace, kube.HookOnlyStrategy
		if _, err := upgrade.Run(chart.ReleaseName, changed, nil); err != nil {
			t.Errorf("helm upgrade of what join wrote: %v", err)
		}
		policy := get(b, "west", "", "seamark-identity-locked", &admissionregistrationv1.ValidatingAdmissionPolicy{})
		if !strings.Contains(policy.Spec.Validations[0].MessageExpression, "is the identity (") {
			t.Error("helm upgrade did not change the policy")
		}
		u := action.NewUninstall(b.helm("west"))
		u.WaitStrategy = kube.HookOnlyStrategy
		if _, err := u.Run(chart.ReleaseName); err != nil {
			t.Errorf("helm uninstall: %v", err)
		}
		o := b.must("leave --context west --broker-context west")
		if strings.Contains(o.Stdout, "uninstalled") || strings.Contains(o.Stdout, "NOT from the broker") {
			t.Errorf("leave after helm uninstall says:\n%s", o.Stdout)
		}
	})
	t.Run("with an invitation", func(t *testing.T) { checkInvitationValue(t, b) })
	t.Run("another namespace", func(t *testing.T) {
		err := b.helmInstall(t, "west", nil, func(i *action.Install) { i.Namespace = "elsewhere" })
		if err == nil || !strings.Contains(err.Error(), "install with --namespace seamark-system") {
			t.Errorf("helm install elsewhere: %v", err)
		}
	})
}

// checkInvitationValue checks that helm with an invitation as a value makes the cluster a member,
// that upgrades with the same value change nothing, and that join replaces the value.
func checkInvitationValue(t *testing.T, b *fixture) {
	invitation := b.must("broker invite east --context west --file -").Stdout
	values := map[string]any{"invitation": invitation}
	if err := b.helmInstall(t, "east", values, func(*action.Install) {}); err != nil {
		t.Fatalf("helm install: %v", err)
	}
	_, stop := b.runAgent("east")
	harness.Eventually(t, "the cluster is a member", func() error {
		p := &aboutv1beta1.ClusterProperty{}
		return b.client("east").Get(t.Context(), types.NamespacedName{Name: aboutv1beta1.PropertyClusterSet}, p)
	})
	token := func(name string) string {
		return string(get(b, "east", chart.Namespace, name, &corev1.Secret{}).Data["token"])
	}
	first := token(objects.MembershipSecret)
	if first == "" || first != token(objects.InvitationSecret) {
		t.Errorf("the agent stored another token than the invitation's")
	}
	u := action.NewUpgrade(b.helm("east"))
	u.Namespace, u.WaitStrategy = chart.Namespace, kube.HookOnlyStrategy
	if _, err := u.Run(chart.ReleaseName, packaged(t), values); err != nil {
		t.Errorf("helm upgrade with the same invitation: %v", err)
	}
	if token(objects.MembershipSecret) != first {
		t.Error("helm upgrade changed the membership")
	}
	b.join("east", "west", "")
	harness.Eventually(t, "join replaces the value, and the agent follows", func() error {
		invited, stored := token(objects.InvitationSecret), token(objects.MembershipSecret)
		if invited == first || stored != invited {
			return fmt.Errorf("the invitation is new: %t; the stored token is that of the invitation: %t", invited != first, stored == invited)
		}
		return nil
	})
	stop()
	b.must("leave --context east --broker-context west")
	for _, name := range []string{objects.InvitationSecret, objects.MembershipSecret} {
		err := b.client("east").Get(t.Context(), types.NamespacedName{Namespace: chart.Namespace, Name: name}, &corev1.Secret{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("after leave there is Secret %s (%v)", name, err)
		}
	}
}
