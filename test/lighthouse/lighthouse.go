// Package lighthouse runs real agents of Submariner Lighthouse on control planes of package
// harness, set up as `subctl` and Submariner's operator do: the same CRDs, namespaces and accounts.
// It is for tests of migrations. The agent is built from its Go module; see package kubeparts.
//
// Submariner's operator and Lighthouse's DNS server do not run: the first needs pods, and the
// module of the second is not published. Operator and Resolve act as they do, as far as a move
// depends on it.
package lighthouse

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

// The names that Submariner gives.
const (
	OperatorNamespace = "submariner-operator"
	BrokerNamespace   = "submariner-k8s-broker"
	AgentAccount      = "submariner-lighthouse-agent"
)

// programs returns the folder of the built programs.
var programs = sync.OnceValues(func() (string, error) { return kubeparts.Lighthouse(context.Background(), os.Stderr) })

// Agent is the Lighthouse agent of one cluster.
type Agent struct {
	ID     string
	CP     *controlplane.ControlPlane
	Client client.Client

	env        []string
	kubeconfig string
	process    *exec.Cmd
	ended      chan struct{} // closed when the process has ended
	logged     int64         // the size of its log when the process started
	dns        dnsServer
}

// CRDs returns the CRDs that Submariner's operator writes at each of its starts: those of the MCS
// API, and ServiceDiscovery. The last one, Submariner, comes with `subctl join`.
func CRDs(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := printedCRDs()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]*apiextensionsv1.CustomResourceDefinition, len(all))
	for i, crd := range all {
		out[i] = crd.DeepCopy()
	}
	return out
}

var printedCRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	dir, err := programs()
	if err != nil {
		return nil, err
	}
	text, err := exec.Command(filepath.Join(dir, "lighthouse-crds")).Output()
	if err != nil {
		return nil, fmt.Errorf("print the CRDs of Lighthouse: %w", err)
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		if part = bytes.TrimPrefix(part, []byte("---\n")); len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(part, crd); err != nil {
			return nil, fmt.Errorf("read a CRD of Lighthouse: %w", err)
		}
		if crd.Name != "" { // the text begins with a comment
			out = append(out, crd)
		}
	}
	if len(out) != 4 {
		return nil, fmt.Errorf("there are %d CRDs of Submariner, want 4", len(out))
	}
	return out, nil
})

// WriteCRDs writes the CRDs as Submariner's operator does at each of its starts: it replaces
// existing ones, labels and annotations included. The operator exits when that fails.
func WriteCRDs(t testing.TB, c client.Client) error {
	t.Helper()
	var errs []error
	for _, crd := range CRDs(t)[:3] {
		errs = append(errs, retry.RetryOnConflict(retry.DefaultBackoff, func() error { return replace(t.Context(), c, crd) }))
	}
	return errors.Join(errs...)
}

func replace(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	existing := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Get(ctx, client.ObjectKeyFromObject(crd), existing)
	if apierrors.IsNotFound(err) {
		return c.Create(ctx, crd.DeepCopy())
	}
	if err != nil {
		return err
	}
	wanted := crd.DeepCopy()
	wanted.ResourceVersion = existing.ResourceVersion
	return c.Update(ctx, wanted)
}

// Set is a broker of Lighthouse and the agents of its clusters.
type Set struct {
	Agents []*Agent
}

// New sets up Lighthouse: a broker on host, and the clusters of cps with these ids. It does not
// start the agents. They are stopped at the end of the test.
func New(t testing.TB, host *controlplane.ControlPlane, cps []*controlplane.ControlPlane, ids ...string) *Set {
	t.Helper()
	admin := harness.Client(t, host)
	if err := WriteCRDs(t, admin); err != nil {
		t.Fatalf("write the CRDs of Lighthouse's broker: %v", err)
	}
	ensure(t, admin, namespace(BrokerNamespace))
	s := &Set{}
	for i, cp := range cps {
		s.Agents = append(s.Agents, join(t, host, cp, ids[i]))
	}
	t.Cleanup(s.Stop)
	return s
}

// join prepares one cluster, as `subctl join` does.
func join(t testing.TB, host, cp *controlplane.ControlPlane, id string) *Agent {
	t.Helper()
	a := &Agent{ID: id, CP: cp, Client: harness.Client(t, cp)}
	if err := WriteCRDs(t, a.Client); err != nil {
		t.Fatalf("write the CRDs of %s: %v", id, err)
	}
	ensure(t, a.Client, namespace(OperatorNamespace))
	ensure(t, a.Client, settings())
	ensure(t, a.Client, CRDs(t)[3])
	ensure(t, a.Client, clusterCRD())
	if err := a.startDNS(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.stopDNS)
	token := account(t, a.Client, OperatorNamespace, AgentAccount)
	local := cp.Config()
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*tokenConfig(local, token), a.kubeconfig); err != nil {
		t.Fatal(err)
	}
	broker := host.Config()
	a.env = []string{
		"SUBMARINER_NAMESPACE=" + OperatorNamespace, "SUBMARINER_CLUSTERID=" + id,
		"BROKER_K8S_APISERVER=" + strings.TrimPrefix(broker.Host, "https://"),
		"BROKER_K8S_APISERVERTOKEN=" + account(t, harness.Client(t, host), BrokerNamespace, "cluster-"+id),
		"BROKER_K8S_REMOTENAMESPACE=" + BrokerNamespace,
		"BROKER_K8S_CA=" + base64.StdEncoding.EncodeToString(broker.CAData),
	}
	return a
}

// settings returns the ConfigMap with the settings of all parts of Submariner. Its agents send five
// requests a second by default, and tests would mostly wait for them.
func settings() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: "submariner-global"},
		Data: map[string]string{
			"k8s.client.qps": "50", "k8s.client.burst": "100", "k8s.broker.client.qps": "50", "k8s.broker.client.burst": "100",
		},
	}
}

func tokenConfig(server *rest.Config, token string) *clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	out.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: token}
	out.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "agent"}
	out.CurrentContext = "cluster"
	return out
}

// account creates a ServiceAccount that may do everything, and returns a token for it. RBAC is not
// what these tests are about; admission policies see the real names.
func account(t testing.TB, c client.Client, ns, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	ensure(t, c, sa)
	ensure(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	})
	return tokenOf(t, c, sa)
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func ensure(t testing.TB, c client.Client, obj client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

// Start starts the agents of all clusters.
func (s *Set) Start(t testing.TB) {
	t.Helper()
	for _, a := range s.Agents {
		a.Start(t)
	}
}

// Stop stops all agents.
func (s *Set) Stop() {
	for _, a := range s.Agents {
		a.Kill()
	}
}

// Start starts the agent. Its log is beside those of the control plane.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	a.process, a.logged = a.command(t), 0
	if info, err := os.Stat(a.LogPath()); err == nil {
		a.logged = info.Size()
	}
	if err := controlplane.StartChild(a.process); err != nil {
		t.Fatalf("start Lighthouse's agent of %s: %v", a.ID, err)
	}
	process, ended := a.process, make(chan struct{})
	a.ended = ended
	go func() { defer close(ended); _ = process.Wait() }() // it was killed, or its log says why
}

// hasExited reports whether the agent has ended by itself, as it does when it starts while the
// API server is away.
func (a *Agent) hasExited() bool {
	if a.process == nil {
		return false
	}
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// lacksCA reports whether the agent asks the broker without the certificate of its authority. One
// that starts while the broker is away does so until it is restarted: it first tries to do without,
// and takes a refused connection for a success.
func (a *Agent) lacksCA() bool {
	if a.process == nil {
		return false
	}
	log, err := os.ReadFile(a.LogPath())
	return err == nil && bytes.Contains(log[min(a.logged, int64(len(log))):], []byte("certificate signed by unknown authority"))
}

// Uninstall runs the agent as the uninstall job of Submariner's operator does, and returns its
// error.
func (a *Agent) Uninstall(t testing.TB) error {
	t.Helper()
	cmd := a.command(t)
	cmd.Env = append(cmd.Env, "SUBMARINER_UNINSTALL=true")
	if err := controlplane.StartChild(cmd); err != nil {
		t.Fatalf("start the uninstall job of %s: %v", a.ID, err)
	}
	return cmd.Wait()
}

// Kill kills the agent, as `kubectl scale --replicas=0` with its grace period of zero does. Killing
// a stopped agent does nothing.
func (a *Agent) Kill() {
	if a.process == nil {
		return
	}
	_ = a.process.Process.Signal(syscall.SIGKILL)
	<-a.ended
	a.process = nil
}

// Restart kills the agent and starts it again.
func (a *Agent) Restart(t testing.TB) {
	t.Helper()
	a.Kill()
	a.Start(t)
}

// LogPath returns the file that the agent logs to.
func (a *Agent) LogPath() string {
	return filepath.Join(filepath.Dir(a.CP.Logs()[0]), "lighthouse-"+a.ID+".log")
}

func (a *Agent) command(t testing.TB) *exec.Cmd {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(a.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("open the log of Lighthouse's agent of %s: %v", a.ID, err)
	}
	t.Cleanup(func() { _ = log.Close() })
	cmd := exec.Command(filepath.Join(dir, "lighthouse-agent"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "KUBECONFIG=" + a.kubeconfig}, a.env...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}

// Slices returns a selector of the EndpointSlices that Lighthouse manages.
func Slices() client.MatchingLabels {
	return client.MatchingLabels{"endpointslice.kubernetes.io/managed-by": "lighthouse-agent.submariner.io"}
}

// BrokerCredential creates an account on Lighthouse's broker with the rights that Submariner gives
// to a cluster, and returns the content of the Secret for it: that of submariner-broker-secret, and
// the address of the API server.
func BrokerCredential(t testing.TB, host *controlplane.ControlPlane, account string) map[string][]byte {
	t.Helper()
	c, all := harness.Client(t, host), []string{"create", "get", "list", "watch", "patch", "update", "delete"}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: BrokerNamespace, Name: account}}
	ensure(t, c, sa)
	ensure(t, c, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: BrokerNamespace, Name: account},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports", "serviceimports/status"}, Verbs: all},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices", "endpointslices/restricted"}, Verbs: all},
		},
	})
	ensure(t, c, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: BrokerNamespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: BrokerNamespace, Name: account}},
	})
	cfg := host.Config()
	return map[string][]byte{
		"server": []byte(strings.TrimPrefix(cfg.Host, "https://")), "ca.crt": cfg.CAData, "namespace": []byte(BrokerNamespace),
		"token": []byte(tokenOf(t, c, sa)),
	}
}

func tokenOf(t testing.TB, c client.Client, sa *corev1.ServiceAccount) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	if err := c.SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatalf("create a token of %s/%s: %v", sa.Namespace, sa.Name, err)
	}
	return request.Status.Token
}
