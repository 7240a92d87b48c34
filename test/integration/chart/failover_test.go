package chart

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/test/harness"
)

const joinEast = "join --broker-context east --context east --clusterid east --no-wait --no-dns -o json "

// runsProxy reports whether the DaemonSet of the proxy exists.
func (b *fixture) runsProxy() bool {
	b.t.Helper()
	err := b.client("east").Get(b.t.Context(), types.NamespacedName{Namespace: chart.Namespace, Name: "seamark-proxy"}, &appsv1.DaemonSet{})
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

// Where the proxy for failovers cannot run or has no effect, join leaves it out and says so, unless
// the user chose it.
func TestJoinWithoutProxyForFailovers(t *testing.T) {
	b := newFixture(t, "east")
	b.must("broker deploy --context east")
	const enforce = "pod-security.kubernetes.io/enforce"
	b.create("east", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chart.Namespace, Labels: map[string]string{enforce: "restricted"}}})

	t.Run("namespace of the user", func(t *testing.T) {
		o := b.must(joinEast)
		const note = "note: proxy.failover is set to false: namespace seamark-system enforces the pod security standard restricted"
		if !strings.Contains(o.Stderr, note) || b.runsProxy() {
			t.Errorf("proxy: %t, standard error: %s", b.runsProxy(), o.Stderr)
		}
		if again := b.must(joinEast); strings.Contains(again.Stderr, "note:") || b.runsProxy() {
			t.Errorf("joining again: %s", again.Stderr)
		}
		for _, flags := range []string{"--set proxy.failover=true", "--dataplane nftables"} {
			if o := b.run(joinEast + flags); o.Code == 0 || !strings.Contains(o.Stderr, "kubectl label namespace seamark-system") {
				t.Errorf("%s: exit %d: %s", flags, o.Code, o.Stderr)
			}
		}
		checkAdmitted(t, b, "seamark-agent", "seamark-dns", "seamark-beacon")
		b.must("leave --context east --broker-context east")
	})
	t.Run("Cilium replaces kube-proxy", func(t *testing.T) {
		namespace := get(b, "east", "", chart.Namespace, &corev1.Namespace{})
		namespace.Labels[enforce] = "privileged"
		if err := b.client("east").Update(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		cilium := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"},
			Data: map[string]string{"kube-proxy-replacement": "true"}}
		b.create("east", cilium)
		if o := b.must(joinEast); !strings.Contains(o.Stderr, "Cilium replaces kube-proxy") || b.runsProxy() {
			t.Errorf("proxy: %t, standard error: %s", b.runsProxy(), o.Stderr)
		}
		if o := b.must(joinEast + "--set proxy.failover=true"); strings.Contains(o.Stderr, "note:") || !b.runsProxy() {
			t.Errorf("proxy chosen by the user: %t, standard error: %s", b.runsProxy(), o.Stderr)
		}
		b.must("leave --context east --broker-context east")
		if err := b.client("east").Delete(t.Context(), cilium); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("admission refuses it", func(t *testing.T) { checkRefused(t, b) })
}

// checkRefused checks that join says how to do without the proxy where a policy refuses it.
func checkRefused(t *testing.T, b *fixture) {
	refuseDaemonSets(t, b)
	const advice = "join with --set proxy.failover=false (failovers then take some seconds longer)"
	if o := b.run(joinEast); o.Code != 1 || !strings.HasSuffix(strings.TrimSpace(o.Stderr), advice) {
		t.Errorf("exit %d: %s", o.Code, o.Stderr)
	}
	if o := b.run(joinEast + "--set proxy.failover=true"); o.Code != 1 || strings.Contains(o.Stderr, advice) {
		t.Errorf("chosen by the user: exit %d: %s", o.Code, o.Stderr)
	}
	if o := b.must(joinEast + "--set proxy.failover=false"); strings.Contains(o.Stderr, "note:") || b.runsProxy() {
		t.Errorf("as advised: %s", o.Stderr)
	}
}

// refuseDaemonSets makes a policy of the cluster deny DaemonSets in Seamark's namespace.
func refuseDaemonSets(t *testing.T, b *fixture) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "no-daemonsets"}
	match := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}},
		},
	}}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: match, Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no pods on all nodes"}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta}
	binding.Spec.PolicyName = meta.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	b.create("east", policy, binding)
	labels := map[string]string{"app": "trial"}
	trial := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: "trial"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		},
	}}
	harness.Eventually(t, "the policy denies DaemonSets", func() error {
		if err := b.client("east").Create(t.Context(), trial.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return fmt.Errorf("creating one: %w", err)
		}
		return nil
	})
}
