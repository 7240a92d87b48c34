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
	// labelPartOf is on everything of ours on an API server.
	labelPartOf = "app.kubernetes.io/part-of"
	// LabelBrokerNamespace and LabelClusterID, on the bindings of a member, tell whose they are: bindings have no namespace.
	LabelBrokerNamespace = "seamark.dev/broker-namespace"
	// LabelClusterID is the id of the member.
	LabelClusterID = "seamark.dev/cluster-id"
)

// MemberBindings returns what ties a member to the grants in its Cluster object: the namespaces it may export from and the
// addresses it may hand out. Apply them before the member gets its credential, and delete them after that is revoked:
// without them the member could export any namespace. While they exist and the Cluster object does not, the API server
// refuses what the member writes.
//
// Each is chosen by the label that names the writer, so a write is checked against one member's grants however many members
// there are.
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
				// Imported slices in a cluster that is broker and member at once carry the same label: not ours to judge.
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: brokerNamespace}},
				ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{label: string(id)}},
			},
		},
	}
	defaultMatch(binding.Spec.MatchResources)
	return binding
}
