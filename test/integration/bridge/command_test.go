package bridge_test

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
	"github.com/seamark-dev/seamark/test/transcript"
)

// byCommand removes the bridge of the tests before, installs it again, runs it with the rights that
// the command gave it, and removes it.
func byCommand(t *testing.T, m *mixed, ns string) {
	m.installSubmariner(t)
	for _, name := range []string{objects.BridgeLighthouseSecret, objects.BridgeInvitation("east"), objects.BridgeMembership("east")} {
		m.labelAsInstalled(t, name)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	contexts := map[string]*rest.Config{"hub": m.lighthouseHost.Config(), "broker": m.seamarkHost.Config()}
	if err := clientcmd.WriteToFile(*harness.Kubeconfig(contexts, "default"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	before := m.exportInSeamark(t, fleet.NewService(ns, "before"), "10.2.0.1") // there is something to withdraw
	m.awaitLighthouse(t, ns, "before", before.Spec.ClusterIP)
	m.killBridge()
	transcript.Check(t, filepath.Join("testdata", "command.txt"), func(line string) transcript.Result {
		if line == "(use it)" {
			m.runWithItsRights(t)
			fromEast := m.exportInLighthouse(t, fleet.NewService(ns, "orders"), "10.1.0.1")
			fromWest := m.exportInSeamark(t, fleet.NewService(ns, "web"), "10.2.0.1")
			m.awaitLighthouse(t, ns, "web", fromWest.Spec.ClusterIP)
			m.west().AwaitImport(t, ns, "orders", map[string][]string{"east": {fromEast.Spec.ClusterIP}})
			m.killBridge()
			return transcript.Result{Stdout: "(used)\n"}
		}
		return transcript.Run(t.Context(), kubeconfig, "", line)
	})
	m.awaitLighthouse(t, ns, "web")
	m.west().AwaitNoImport(t, ns, "orders")
	for name, version := range m.seamarkObjects(t) {
		if strings.Contains(name, ".east") {
			t.Errorf("Seamark's broker still has %s (%s)", name, version)
		}
	}
}

// installSubmariner creates what the command reads of Submariner.
func (m *mixed) installSubmariner(t *testing.T) {
	t.Helper()
	for _, crd := range lighthouse.CRDs(t) {
		m.create(crd)
	}
	m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lighthouse.OperatorNamespace}})
	credential := lighthouse.BrokerCredential(t, m.lighthouseHost, "cluster-hub")
	cr := lighthouse.Submariner("hub")
	if err := unstructured.SetNestedField(cr.Object, string(credential["server"]), "spec", "brokerK8sApiServer"); err != nil {
		t.Fatal(err)
	}
	delete(credential, "server")
	m.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: lighthouse.OperatorNamespace, Name: "submariner-broker-secret"}, Data: credential,
	})
	harness.Eventually(t, "the API server serves Submariner", func() error {
		return client.IgnoreAlreadyExists(m.local.Create(t.Context(), cr.DeepCopy()))
	})
}

// labelAsInstalled labels a Secret of the tests before as the command does.
func (m *mixed) labelAsInstalled(t *testing.T, name string) {
	t.Helper()
	s := &corev1.Secret{}
	if err := m.local.Get(t.Context(), client.ObjectKey{Namespace: objects.AgentNamespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	s.Labels = map[string]string{"app.kubernetes.io/component": "bridge"}
	if name != objects.BridgeLighthouseSecret {
		s.Labels["multicluster.kubernetes.io/source-cluster"] = "east"
	}
	if err := m.local.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// runWithItsRights runs the bridge as the ServiceAccount that the command created, with the
// arguments of its Deployment.
func (m *mixed) runWithItsRights(t *testing.T) {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: objects.BridgeName}}
	request := &authenticationv1.TokenRequest{}
	if err := m.local.SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	config := harness.Kubeconfig(map[string]*rest.Config{"hub": m.lighthouseHost.Config()}, "default")
	config.CurrentContext = "hub"
	config.AuthInfos["hub"].ClientCertificateData, config.AuthInfos["hub"].ClientKeyData = nil, nil
	config.AuthInfos["hub"].Token = request.Status.Token
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := m.local.Get(t.Context(), client.ObjectKey{Namespace: objects.AgentNamespace, Name: objects.BridgeName}, d); err != nil {
		t.Fatal(err)
	}
	m.args = d.Spec.Template.Spec.Containers[0].Args
	m.startBridge("--kubeconfig", path)
}
