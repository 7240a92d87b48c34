package brokeradmin

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/policies"
)

// installGrants installs the policies that enforce the grants of a broker's members.
func installGrants(ctx context.Context, c client.Client, namespace string) ([]Step, error) {
	grants, err := policies.Grants(namespace)
	if err != nil {
		return nil, err
	}
	applied, err := policies.Apply(ctx, c, grants...)
	return policySteps(applied), err
}

// bindGrants makes the API server enforce the grants of a member.
func bindGrants(ctx context.Context, c client.Client, namespace, id string) ([]Step, error) {
	applied, err := policies.Apply(ctx, c, policies.MemberBindings(namespace, v1alpha1.ClusterID(id))...)
	return policySteps(applied), err
}

// allowAccount gives a member's account its role. What an earlier version gave it goes afterwards.
func allowAccount(ctx context.Context, c client.Client, namespace, id string) error {
	rules := ownRoleRules(id)
	if _, err := ensure(ctx, c, ownRole(namespace, id), func(have *rbacv1.Role) bool {
		changed := !equality.Semantic.DeepEqual(have.Rules, rules)
		have.Rules = rules
		return changed
	}); err != nil {
		return err
	}
	binding := memberBinding(namespace, id)
	subjects := binding.Subjects
	if _, err := ensure(ctx, c, binding, func(have *rbacv1.RoleBinding) bool {
		changed := !equality.Semantic.DeepEqual(have.Subjects, subjects)
		have.Subjects = subjects
		return changed
	}); err != nil {
		return err
	}
	_, err := deleteAll(ctx, c, []client.Object{sharedBinding(namespace, id)})
	return err
}

// forgetManagers drops from a Cluster who wrote which of its fields: see objects.ForgetManagers.
func forgetManagers(ctx context.Context, c client.Client, cluster *v1alpha1.Cluster) error {
	const none = `{"metadata":{"managedFields":[{}]}}`
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(none))); err != nil {
		return fmt.Errorf("update cluster %s: %w", cluster.Name, err)
	}
	return nil
}

// upgradeMembers gives members that an earlier version invited what this version gives them. It
// returns what changed.
func upgradeMembers(ctx context.Context, c client.Client, namespace string) (changed []Step, err error) {
	members, err := listMetadata(ctx, c, &v1alpha1.Cluster{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	for i := range members {
		id := members[i].Name
		if len(members[i].ManagedFields) > 0 {
			cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}}
			if err := forgetManagers(ctx, c, cluster); err != nil {
				return changed, err
			}
		}
		steps, err := bindGrants(ctx, c, namespace, id)
		for _, step := range steps {
			if step.Action != Unchanged {
				changed = append(changed, step)
			}
		}
		if err != nil {
			return changed, fmt.Errorf("upgrade cluster %s: %w", id, err)
		}
		role := &rbacv1.Role{}
		err = c.Get(ctx, client.ObjectKeyFromObject(ownRole(namespace, id)), role)
		if absent(err) || err == nil && equality.Semantic.DeepEqual(role.Rules, tombstoneRules(id)) {
			continue // it has no credential, or its removal was interrupted
		}
		if err == nil {
			err = allowAccount(ctx, c, namespace, id)
		}
		if err != nil {
			return changed, fmt.Errorf("upgrade cluster %s: %w", id, err)
		}
	}
	return changed, nil
}
