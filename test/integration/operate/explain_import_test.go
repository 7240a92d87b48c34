package operate_test

import (
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

// A Service of the user's with the name of the derived Service.
func TestExplainDerivedServiceForeign(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	foreign := fleet.NewService(ns, objects.DerivedServiceName("web"))
	term.west.Create(t, foreign)
	term.serve(term.east, ns, "web")
	term.finds(1, "derived-service-foreign", ns, "web", "east,west", `hop "data plane" in west`, "delete service "+foreign.Name)
}

// An admission policy of the importing cluster rejects all Services of the namespace, until it is
// removed.
func TestExplainDerivedServiceRefused(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no more Services in this namespace"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: ns, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	term.west.Create(t, policy, binding)
	harness.Eventually(t, "the policy is enforced", func() error {
		err := term.west.Client.Create(context.Background(), fleet.NewService(ns, "probe"), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("create a Service: %w", err)
		}
		return nil
	})
	term.serve(term.east, ns, "web")
	term.finds(1, "derived-service-refused", ns, "web", "east,west",
		`hop "data plane" in west`, "no more Services in this namespace", objects.DerivedServiceName("web"))
	term.west.Delete(t, binding, policy)
	term.healthy(ns, "web", "east,west")
}

// One endpoint has the address of a node of the importing cluster.
func TestExplainAddressesRefused(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	term.west.Create(t, node)
	t.Cleanup(func() { term.west.Delete(t, node) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.77.0.1"}}
	if err := term.west.Client.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	term.east.Serve(t, fleet.NewService(ns, "web"), "10.77.0.1", "10.77.0.2")
	term.east.Export(t, ns, "web")
	term.finds(0, "addresses-refused", ns, "web", "east,west", "degraded", `hop "import" in west`, "10.77.0.1", "from cluster east")
}

// A service of another IP family than the importing cluster's, and exports that differ in theirs. A
// headless Service without a selector may have any family.
func TestExplainIPFamilies(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	export := func(m *fleet.Member, name, address string, family corev1.IPFamily) {
		t.Helper()
		svc := fleet.NewService(ns, name, func(s *corev1.Service) {
			s.Spec.ClusterIP = corev1.ClusterIPNone
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{family}, ptr.To(corev1.IPFamilyPolicySingleStack)
		})
		slice := fleet.NewSlice(svc, "abc", address)
		slice.AddressType = discoveryv1.AddressType(family)
		m.Create(t, svc, slice)
		m.Export(t, ns, name)
	}
	export(term.east, "six", "fd00:77::1", corev1.IPv6Protocol)
	term.finds(1, "ip-family-not-supported", ns, "six", "east,west", "ip-family-not-supported in west", "PreferDualStack")

	export(term.east, "mixed", "10.77.0.2", corev1.IPv4Protocol)
	term.healthy(ns, "mixed", "east,west")
	export(term.west, "mixed", "fd00:77::2", corev1.IPv6Protocol)
	term.finds(0, "ip-family-conflict", ns, "mixed", "east,west", "degraded", "IPFamilyConflict", "same ipFamilies in all clusters")
}

// A cluster with a copy of another member's membership, as one that was restored from its backup.
func TestExplainIDTaken(t *testing.T) {
	term := sharedClusterset(t)
	cp := harness.Fresh(t, 1)[0]
	local, err := brokeradmin.NewClient(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crds.Install(context.Background(), local, crds.Member); err != nil {
		t.Fatal(err)
	}
	secret := membership(t, term.east)
	twin := &fleet.Member{ID: "twin", CP: cp, Client: local, Agent: term.east.Agent}
	twin.Agent.Local = cp.Config()
	twin.Namespace(t, objects.AgentNamespace)
	twin.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Data: secret.Data})
	ns := term.namespace(twin)
	term.serve(twin, ns, "web")
	term.changeKubeconfig(func(config *clientcmdapi.Config) { addContext(config, "twin", cp.Config()) })
	if err := twin.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(twin.Stop)
	term.finds(1, "id-taken", ns, "web", "twin",
		`hop "broker" in east`, "used by another cluster", "seamark leave --context twin", "--clusterid")
}

// DNS that does not know the name, does not answer, or answers for another cluster.
func TestExplainDNS(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.healthy(ns, "web", "east,west")
	explain := func(server string) transcript.Result {
		return term.run("explain web -n %s --context west --dns %s", ns, server)
	}
	// The server of a cluster without the service answers like a DNS that does not forward.
	address := startDNS(t, &fleet.Member{CP: term.fleet.Broker})
	if err := explain(address).Lacks(1, "dns-no-answer in west", "NXDOMAIN", "seamark doctor"); err != nil {
		t.Error(err)
	}
	if err := explain("127.0.0.1:1").Lacks(1, "dns-silent in west", "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	// East's derived Service has a ClusterIP of its own.
	eastDNS := startDNS(t, term.east)
	harness.Eventually(t, "the DNS server of east is asked in west", func() error {
		return explain(eastDNS).Lacks(0, "dns-differs in west", "degraded", "but the import has")
	})
	term.expect(2, "explain web --dns west=", "--dns west=", "ADDRESS")
}
