package policies

import (
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

// MemberBindings returns the bindings that enforce the grants in a member's Cluster object: the
// namespaces it may export from and the clusterset IPs it may allocate. Apply them before the
// member gets its credential, and delete them after the credential is revoked: without them the
// member could export any namespace. While they exist and the Cluster object does not, the API
// server denies the member's writes.
//
// Each binding selects objects by the label that names the writer, so a write is checked against
// the grants of one member, independently of the number of members.
func MemberBindings(brokerNamespace string, id v1alpha1.ClusterID) []client.Object {
	return []client.Object{
		memberBinding("seamark-broker-grants-owned", mcsv1beta1.LabelSourceCluster, brokerNamespace, id),
		memberBinding("seamark-broker-grants-aggregates", v1alpha1.LabelWrittenBy, brokerNamespace, id),
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
			PolicyName:        policy,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{
				Name: string(id), Namespace: brokerNamespace,
				ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
			},
			MatchResources: &admissionregistrationv1.MatchResources{
				// In a cluster that is broker and member, imported slices have the same label; the policies
				// must not apply to them.
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: brokerNamespace}},
				ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{label: string(id)}},
			},
		},
	}
	defaultMatch(binding.Spec.MatchResources)
	return binding
}
