package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/test/controlplane"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(helperEnv); what != "" {
		helper(m, what)
	}
	Main(m)
}

func TestClustersAreSharedAndDistinct(t *testing.T) {
	first := Clusters(t, 1)
	started := time.Now()
	all := Clusters(t, 3)
	t.Logf("two more control planes were ready after %s", time.Since(started).Round(time.Millisecond))
	if first[0] != all[0] {
		t.Error("a call for three control planes returned another first one")
	}
	uids := map[string]bool{}
	for _, cp := range all {
		var system corev1.Namespace
		if err := Client(t, cp).Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
			t.Fatal(err)
		}
		uids[string(system.UID)] = true
	}
	if len(uids) != 3 {
		t.Errorf("three control planes have %d different kube-system namespaces", len(uids))
	}
}

func TestParallelCallsStartClustersOnce(t *testing.T) {
	var got [4][]*controlplane.ControlPlane
	var wait sync.WaitGroup
	for i := range got {
		wait.Go(func() { got[i] = Clusters(t, 2) })
	}
	wait.Wait()
	for i := range got {
		if got[i][0] != got[0][0] || got[i][1] != got[0][1] {
			t.Fatal("two callers got different control planes")
		}
	}
}

func TestNamespacesAreNewAndOnEveryCluster(t *testing.T) {
	cps := Clusters(t, 2)
	one, two := Namespace(t, cps...), Namespace(t, cps[0])
	if one == two || !strings.HasPrefix(one, "namespacesarenew") {
		t.Errorf("got %s and %s", one, two)
	}
	for _, cp := range cps {
		createConfigMap(t, Client(t, cp), one, "object")
	}
}

func TestConfigsAreCopies(t *testing.T) {
	cp := Clusters(t, 1)[0]
	cp.Config().Host = "changed"
	if cp.Config().Host == "changed" {
		t.Error("a caller got the configuration that another one has changed")
	}
	if cp.Config().QPS != -1 || cp.Config().Host == cp.DirectConfig().Host {
		t.Errorf("got %+v", cp.Config())
	}
}

func TestServiceAccountTokensWork(t *testing.T) {
	cp := Clusters(t, 1)[0]
	ns := Namespace(t, cp)
	admin := kubernetes.NewForConfigOrDie(cp.Config())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "member"}}
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	token, err := admin.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "member", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cp.Config())
	config.BearerToken = token.Status.Token
	member := kubernetes.NewForConfigOrDie(config)
	reviews := member.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:"+ns+":member" {
		t.Errorf("the token belongs to %q, %v", review.Status.UserInfo.Username, err)
	}
	if _, err := member.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without RBAC rules the member may read Secrets: %v", err)
	}
}

func TestPodsAreAdmittedWithoutAControllerManager(t *testing.T) {
	cp := Clusters(t, 1)[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: Namespace(t, cp)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := Client(t, cp).Create(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigWorksWithKubectl(t *testing.T) {
	cp := Clusters(t, 1)[0]
	if info, err := os.Stat(cp.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("other users can read the kubeconfig: %v, %v", info.Mode(), err)
	}
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil || config.CurrentContext != cp.Name() {
		t.Errorf("the context is %q, %v, want %q", config.CurrentContext, err, cp.Name())
	}
	binary, err := kube()
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) ([]byte, error) {
		args = append([]string{"kubectl", "--kubeconfig", cp.Kubeconfig()}, args...)
		return exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	}
	out, err := kubectl("get", "ns", "-o", "name")
	if err != nil || !strings.Contains(string(out), "namespace/kube-system") {
		t.Errorf("kubectl: %v\n%s", err, out)
	}
	out, err = kubectl("version")
	if err != nil || !strings.Contains(string(out), "Server Version: v1.") {
		t.Errorf("the binary has no version: %v\n%s", err, out)
	}
}

func TestControllerManagerEmptiesNamespaces(t *testing.T) {
	cp := Fresh(t, 1, WithControllerManager)[0]
	ns := Namespace(t, cp)
	c := Client(t, cp)
	createConfigMap(t, c, ns, "object")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := c.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the namespace is gone", func() error {
		err := c.Get(t.Context(), client.ObjectKey{Name: ns}, namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", errors.Join(err, errors.New(string(namespace.Status.Phase))))
	})
	if logs := cp.Logs(); len(logs) != 3 {
		t.Errorf("got logs %v, want three, with that of the controller-manager", logs)
	}
}

func TestDualStack(t *testing.T) {
	cp := Fresh(t, 1, func(o *controlplane.Options) { o.ServiceCIDR = "10.7.0.0/16,fd00:7::/112" })[0]
	both := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "dual", Namespace: Namespace(t, cp)},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := Client(t, cp).Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if ips := service.Spec.ClusterIPs; len(ips) != 2 || !strings.HasPrefix(ips[0], "10.7.") || !strings.HasPrefix(ips[1], "fd00:7::") {
		t.Errorf("got ClusterIPs %v", ips)
	}
}

func TestAFailedStartSaysWhy(t *testing.T) {
	binary, err := kube()
	if err != nil {
		t.Fatal(err)
	}
	_, err = controlplane.Start(t.Context(), binary, controlplane.Options{
		Name: "wrong", Dir: t.TempDir(), APIServerArgs: []string{"--no-such-flag"},
	})
	for _, want := range []string{`control plane "wrong"`, "kube-apiserver ended while starting", "unknown flag: --no-such-flag"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// createConfigMap creates a ConfigMap.
func createConfigMap(t testing.TB, c client.Client, ns, name string) {
	t.Helper()
	if err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}); err != nil {
		t.Fatalf("create ConfigMap %s/%s: %v", ns, name, err)
	}
}

// getConfigMap reads a ConfigMap, with a timeout for when the API server does not answer.
func getConfigMap(ctx context.Context, c client.Client, ns, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &corev1.ConfigMap{})
}
