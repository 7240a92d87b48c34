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

// MemberRole is the Role on the broker that members shared which earlier versions invited. Each
// member now has one Role and one RoleBinding: for each request the API server looks through all
// RoleBindings of the namespace.
const MemberRole = "seamark-member"

// memberRoleRules are the same for all members. A Role cannot confine a member to its own objects;
// the admission policies do.
//
// They let a member read the clusterset and write the kinds that members publish. They grant no
// Secrets, ConfigMaps or Events, so that a compromised member cannot read other credentials. They
// grant no deletecollection, so that the policies check each deletion on its own.
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
		{APIGroups: []string{mcs}, Resources: []string{"serviceimports/status"}, Verbs: []string{"update", "patch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: write},
	}
}

// ownRoleRules let one member do that, renew its lease, update its status and renew its own token.
func ownRoleRules(id string) []rbacv1.PolicyRule {
	own, rewrite := []string{id}, []string{"get", "update", "patch"}
	account := []string{objects.MemberAccount(id)}
	return append([]rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: own, Verbs: rewrite},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"clusters/status"}, ResourceNames: own, Verbs: rewrite},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: account, Verbs: []string{"create"}},
	}, memberRoleRules()...)
}

// tombstoneRules let a removed member learn that it was removed, and nothing else.
func tombstoneRules(id string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{id}, Verbs: []string{"get"}},
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

// memberBinding binds a member's account to its role. Names of RBAC objects may contain a colon and
// cluster ids may not, so the name cannot collide with another member's.
func memberBinding(namespace, id string) *rbacv1.RoleBinding {
	return bindingOf(namespace, id, ":own", objects.MemberAccount(id))
}

// sharedBinding binds the account of a member that an earlier version invited to MemberRole.
func sharedBinding(namespace, id string) *rbacv1.RoleBinding {
	return bindingOf(namespace, id, ":shared", MemberRole)
}

func bindingOf(namespace, id, suffix, role string) *rbacv1.RoleBinding {
	account := objects.MemberAccount(id)
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + suffix, Labels: managedLabels(id)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
}

func memberAccount(namespace, id string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.MemberAccount(id), Labels: managedLabels(id)},
	}
}

// memberLease returns the lease of a member. The admin creates it and the member only renews it, so
// a member can never take another's lease.
func memberLease(namespace, id string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: managedLabels(id)},
	}
}

// managedLabels returns the labels of administrative objects on the broker. id is empty for objects
// that all members share.
func managedLabels(id string) map[string]string {
	labels := map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
	if id != "" {
		labels[mcsv1beta1.LabelSourceCluster] = id
	}
	return labels
}
