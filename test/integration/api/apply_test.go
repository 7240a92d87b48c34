package api

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/test/harness"
)

// policyVersions maps each policy and binding of Seamark to its resourceVersion.
func policyVersions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	ofSeamark := client.MatchingLabels{"app.kubernetes.io/part-of": "seamark"}
	result := map[string]string{}
	var all admissionregistrationv1.ValidatingAdmissionPolicyList
	if err := c.List(t.Context(), &all, ofSeamark); err != nil {
		t.Fatal(err)
	}
	for _, policy := range all.Items {
		result["policy "+policy.Name] = policy.ResourceVersion
	}
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := c.List(t.Context(), &bindings, ofSeamark); err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		result["binding "+binding.Name] = binding.ResourceVersion
	}
	return result
}

func TestApplyPolicies(t *testing.T) {
	// With a controller-manager, which type-checks policies and writes the result to their status.
	c := newClient(t, harness.Fresh(t, 1, harness.WithControllerManager)[0].Config())
	ctx := t.Context()
	install(t, c, crds.Broker, crds.Member)
	apply := func() map[policies.Action]int {
		t.Helper()
		count := map[policies.Action]int{}
		for _, set := range []policies.Set{policies.Broker, policies.Member} {
			outcomes, err := policies.Install(ctx, c, set)
			if err != nil {
				t.Fatal(err)
			}
			for _, outcome := range outcomes {
				count[outcome.Action]++
			}
		}
		outcomes, err := policies.Apply(ctx, c, policies.MemberBindings("seamark-broker", "east.eu")...)
		if err != nil {
			t.Fatal(err)
		}
		for _, outcome := range outcomes {
			count[outcome.Action]++
		}
		return count
	}

	first := apply()
	if first[policies.Created] == 0 || first[policies.Unchanged]+first[policies.Updated] != 0 {
		t.Errorf("first: %v", first)
	}
	checkTypes(t, c)
	before := policyVersions(t, c)
	second := apply()
	if second[policies.Unchanged] != first[policies.Created] || len(second) != 1 {
		t.Errorf("second: %v", second)
	}
	if after := policyVersions(t, c); len(after) != first[policies.Created] || !maps.Equal(before, after) {
		t.Errorf("applying again wrote: %v, then %v", before, after)
	}

	t.Run("changes of another client are removed", func(t *testing.T) {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := c.Get(ctx, client.ObjectKey{Name: "seamark-broker-owned"}, &policy); err != nil {
			t.Fatal(err)
		}
		policy.Labels["team"] = "net"
		policy.Spec.MatchConditions = append(policy.Spec.MatchConditions,
			admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
		if err := c.Update(ctx, &policy); err != nil {
			t.Fatal(err)
		}
		if got := apply(); got[policies.Updated] != 1 {
			t.Errorf("restored: %v", got)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(&policy), &policy); err != nil {
			t.Fatal(err)
		}
		if len(policy.Spec.MatchConditions) != 1 || policy.Labels["team"] != "net" {
			t.Errorf("after: %v, %v", policy.Labels, policy.Spec.MatchConditions)
		}
	})

	t.Run("several at once", func(t *testing.T) {
		for _, o := range []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		} {
			if err := c.DeleteAllOf(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if _, err := policies.Install(ctx, c, policies.Broker); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}

// checkTypes waits until every policy has been type-checked, and fails on a warning.
func checkTypes(t *testing.T, c client.Client) {
	t.Helper()
	harness.Eventually(t, "every policy is type-checked", func() error {
		var all admissionregistrationv1.ValidatingAdmissionPolicyList
		if err := c.List(t.Context(), &all); err != nil {
			return err
		}
		for _, policy := range all.Items {
			if policy.Status.TypeChecking == nil || policy.Status.ObservedGeneration != policy.Generation {
				return fmt.Errorf("%s is not type-checked", policy.Name)
			}
			for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
				t.Fatalf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
			}
		}
		return nil
	})
}
