package broker

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/crds"
	"github.com/seamark-dev/seamark/internal/policies"
)

// prepareBroker installs the kinds a broker needs and the policies that confine its members.
func prepareBroker(ctx context.Context, c client.Client) ([]Step, error) {
	return prepare(ctx, c, crds.Broker, policies.Broker)
}

// prepareMember installs the kinds a member needs and the policies that guard its identity.
func prepareMember(ctx context.Context, c client.Client) ([]Step, error) {
	return prepare(ctx, c, crds.Member, policies.Member)
}

// prepare installs kinds before policies: a policy whose parameter kind is missing refuses every write.
func prepare(ctx context.Context, c client.Client, kinds crds.Set, rules policies.Set) ([]Step, error) {
	definitions, err := crds.Install(ctx, c, kinds)
	steps := make([]Step, 0, len(definitions))
	for _, outcome := range definitions {
		steps = append(steps, Step{Object: "CustomResourceDefinition " + outcome.Name, Action: installed(outcome.Action)})
	}
	if err == nil {
		err = shown(ctx, c, kinds)
	}
	if err != nil {
		return steps, err
	}
	applied, err := policies.Install(ctx, c, rules)
	return append(steps, policySteps(applied)...), err
}

func installed(action crds.Action) Action {
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
