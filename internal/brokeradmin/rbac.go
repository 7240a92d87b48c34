package brokeradmin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// MemberRole is the Role on the broker that all members share. What it cannot express, that a member touches only its own
// objects, the admission policies enforce.
const MemberRole = "seamark-member"

// memberRoleRules let a member read the clusterset and write the kinds members write. No Secrets, ConfigMaps or Events: a
// member that is taken over learns nobody's credential. No deletecollection: the policies see each deletion by itself.
func memberRoleRules() []rbacv1.PolicyRule {
	seamark, mcs := v1alpha1.GroupVersion.Group, mcsv1beta1.GroupName
	read := []string{"get", "list", "watch"}
	write := []string{"create", "update", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{seamark}, Resources: []string{"clustersets", "clusters", "exportrecords"}, Verbs: read},
		{APIGroups: []string{mcs}, Resources: []string{"serviceimports"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: read},
		{APIGroups: []string{seamark}, Resources: []string{"exportrecords"}, Verbs: write},
		{APIGroups: []string{mcs}, Resources: []string{"serviceimports"}, Verbs: write},
		{APIGroups: []string{mcs}, Resources: []string{"serviceimports/status"}, Verbs: []string{"update"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: write},
	}
}

// ownRoleRules let one member keep its heartbeat and its status, and renew its own token.
func ownRoleRules(id string) []rbacv1.PolicyRule {
	rewrite := []string{"get", "update", "patch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{id}, Verbs: rewrite},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"clusters/status"}, ResourceNames: []string{id}, Verbs: rewrite},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{objects.MemberAccount(id)}, Verbs: []string{"create"}},
	}
}

func sharedRole(namespace string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: MemberRole, Labels: managedLabels("")},
		Rules:      memberRoleRules(),
	}
}

func ownRole(namespace, id string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.MemberAccount(id), Labels: managedLabels(id)},
		Rules:      ownRoleRules(id),
	}
}

// memberBindings bind a member's account to the shared role and to its own.
func memberBindings(namespace, id string) []*rbacv1.RoleBinding {
	binding := func(name, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: managedLabels(id)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: objects.MemberAccount(id)}},
		}
	}
	// The colon is legal in names of RBAC objects and in no cluster id, so the two can never meet another member's.
	return []*rbacv1.RoleBinding{binding(objects.MemberAccount(id)+":shared", MemberRole), binding(objects.MemberAccount(id)+":own", objects.MemberAccount(id))}
}

func memberAccount(namespace, id string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.MemberAccount(id), Labels: managedLabels(id)},
	}
}

// memberLease is created for the member, which may renew it but not create one: so it can never take another's name.
func memberLease(namespace, id string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: managedLabels(id)},
	}
}

// managedLabels are the labels of administrative objects on the broker; id is empty for those of all members.
func managedLabels(id string) map[string]string {
	labels := map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
	if id != "" {
		labels[mcsv1beta1.LabelSourceCluster] = id
	}
	return labels
}
