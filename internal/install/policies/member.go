package policies

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// labelPartOf is on every object of Seamark on an API server.
	labelPartOf = "app.kubernetes.io/part-of"
	// LabelBrokerNamespace is the namespace of the broker that a member's bindings belong to: bindings
	// have no namespace.
	LabelBrokerNamespace = "seamark.dev/broker-namespace"
	// LabelClusterID is the id of the member that the bindings belong to.
	LabelClusterID = "seamark.dev/cluster-id"
)

// grantsPrefix begins the names of the policies whose parameter is a member's Cluster object.
const grantsPrefix = "seamark-broker-grants-"

// Grants returns the policies that enforce the grants of one broker's members. They are those of
// the set Broker, for one namespace. The API server compares a write with each member's binding,
// and parses the binding's selectors each time: a policy for one namespace saves one of two.
//
// The policies of the set itself serve members that earlier versions invited.
func Grants(brokerNamespace string) ([]client.Object, error) {
	all, err := Load(Broker)
	if err != nil {
		return nil, err
	}
	var out []client.Object
	for _, obj := range all {
		policy, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok || !strings.HasPrefix(policy.Name, grantsPrefix) {
			continue
		}
		policy.Name += "." + brokerNamespace
		policy.Labels[LabelBrokerNamespace] = brokerNamespace
		// In a cluster that is broker and member, imported slices have the same labels.
		inNamespace := map[string]string{corev1.LabelMetadataName: brokerNamespace}
		policy.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: inNamespace}
		out = append(out, policy)
	}
	return out, nil
}

// MemberBindings returns the bindings that enforce the grants in a member's Cluster object: the
// namespaces it may export from and the clusterset IPs it may allocate. Apply them before the
// member gets its credential, and delete them after the credential is revoked: without them the
// member could export any namespace. While they exist and the Cluster object does not, the API
// server denies the member's writes.
//
// Each binding selects objects by the label that names the writer, so a write is checked against
// the grants of one member. The policies are those of Grants.
func MemberBindings(brokerNamespace string, id v1alpha1.ClusterID) []client.Object {
	return []client.Object{
		memberBinding(grantsPrefix+"owned", mcsv1beta1.LabelSourceCluster, brokerNamespace, id),
		memberBinding(grantsPrefix+"aggregates", v1alpha1.LabelWrittenBy, brokerNamespace, id),
	}
}

func memberBinding(policy, label, brokerNamespace string, id v1alpha1.ClusterID) client.Object {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: policy + "." + brokerNamespace + "." + string(id),
			Labels: map[string]string{
				labelPartOf: "seamark", LabelBrokerNamespace: brokerNamespace, LabelClusterID: string(id),
			},
		},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy + "." + brokerNamespace,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{
				Name: string(id), Namespace: brokerNamespace,
				ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
			},
			MatchResources: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: string(id)}},
			},
		},
	}
	defaultMatch(binding.Spec.MatchResources)
	return binding
}
