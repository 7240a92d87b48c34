package brokeradmin

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
)

// installKinds installs the CRDs that a broker or a member needs.
func installKinds(ctx context.Context, c client.Client, set crds.Set) ([]Step, error) {
	definitions, err := crds.Install(ctx, c, set)
	steps := make([]Step, 0, len(definitions))
	for _, outcome := range definitions {
		steps = append(steps, Step{Object: "CustomResourceDefinition " + outcome.Name, Action: actionOf(outcome.Action)})
	}
	return steps, err
}

// installPolicies installs the policies that confine a broker's members or guard a member's
// identity. Their parameter kinds must be installed first: a policy whose parameter kind is missing
// denies every write.
func installPolicies(ctx context.Context, c client.Client, kinds crds.Set, rules policies.Set) ([]Step, error) {
	if err := waitForDiscovery(ctx, c, kinds); err != nil {
		return nil, err
	}
	applied, err := policies.Install(ctx, c, rules)
	return policySteps(applied), err
}

func actionOf(action crds.Action) Action {
	switch action {
	case crds.Create:
		return Created
	case crds.Update:
		return Updated
	default:
		return Unchanged
	}
}

func policySteps(outcomes []policies.Outcome) []Step {
	steps := make([]Step, 0, len(outcomes))
	for _, outcome := range outcomes {
		steps = append(steps, Step{Object: outcome.Kind + " " + outcome.Name, Action: Action(outcome.Action)})
	}
	return steps
}
