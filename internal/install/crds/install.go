package crds

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// attempts is how often a definition that others change at the same time is decided anew. Each lost race means that
	// somebody else made progress, so a few are enough.
	attempts = 10
	// establishTimeout bounds the wait for the API server to serve a new kind; it takes well under a second.
	establishTimeout = 30 * time.Second
	establishPoll    = 50 * time.Millisecond
)

// Outcome is what was done about one definition, for people and for -o json.
type Outcome struct {
	// Name of the CustomResourceDefinition.
	Name string `json:"name"`
	// Action that was taken; what the API server has now serves Seamark in any case.
	Action Action `json:"action"`
	// Reason for the action, in words.
	Reason string `json:"reason"`
}

// Plan says what Install would do, without doing it. Definitions that Install would refuse are among the outcomes.
func Plan(ctx context.Context, c client.Client, set Set) ([]Outcome, error) {
	definitions, err := Definitions(set)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(definitions))
	for _, definition := range definitions {
		existing, err := read(ctx, c, definition.CRD.Name)
		if err != nil {
			return nil, err
		}
		decision := Decide(existing, definition)
		outcomes = append(outcomes, Outcome{definition.CRD.Name, decision.Action, decision.Reason})
	}
	return outcomes, nil
}

// Install brings the definitions of a set to an API server and waits until it serves them. Where one cannot be used and is
// not ours to change it writes nothing at all and returns an error that says what to do. Installing again writes
// nothing; several installers at once come to the same result.
//
// The client's scheme must know apiextensions.k8s.io/v1, and the client must read from the API server, not from a cache. The
// outcomes are complete exactly when the error is nil.
func Install(ctx context.Context, c client.Client, set Set) ([]Outcome, error) {
	planned, err := Plan(ctx, c, set)
	if err != nil {
		return nil, err
	}
	var refused []error
	for _, outcome := range planned {
		if outcome.Action == Refuse {
			refused = append(refused, fmt.Errorf("CustomResourceDefinition %s: %s", outcome.Name, outcome.Reason))
		}
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	definitions, err := Definitions(set)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(definitions))
	for _, definition := range definitions {
		decision, err := install(ctx, c, definition)
		if err != nil {
			return outcomes, fmt.Errorf("CustomResourceDefinition %s: %w", definition.CRD.Name, err)
		}
		outcomes = append(outcomes, Outcome{definition.CRD.Name, decision.Action, decision.Reason})
	}
	for _, definition := range definitions {
		if err := established(ctx, c, definition.CRD.Name); err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// install decides and acts, and decides anew when somebody else was faster. The decision it returns is the one that was
// carried out.
func install(ctx context.Context, c client.Client, ours Definition) (Decision, error) {
	for range attempts {
		existing, err := read(ctx, c, ours.CRD.Name)
		if err != nil {
			return Decision{}, err
		}
		decision := Decide(existing, ours)
		switch decision.Action {
		case Create:
			err = c.Create(ctx, ours.CRD.DeepCopy())
		case Update:
			err = c.Update(ctx, merged(existing, ours.CRD))
		case Refuse:
			return decision, errors.New(decision.Reason)
		case Keep:
		}
		// NotFound on update: deleted meanwhile.
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || (existing != nil && apierrors.IsNotFound(err)) {
			continue
		}
		return decision, err
	}
	return Decision{}, errors.New("others kept changing it: find out who, then try again")
}

// read returns nil for a definition that is not there.
func read(ctx context.Context, c client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// established waits until the API server serves the kind. It gives up early when the names are taken by another
// definition, because waiting will not free them.
func established(ctx context.Context, c client.Client, name string) error {
	last := "no condition yet"
	err := wait.PollUntilContextTimeout(ctx, establishPoll, establishTimeout, true, func(ctx context.Context) (bool, error) {
		crd, err := read(ctx, c, name)
		if err != nil {
			return false, err
		}
		if crd == nil {
			return false, errors.New("it was deleted meanwhile")
		}
		for _, condition := range crd.Status.Conditions {
			yes := condition.Status == apiextensionsv1.ConditionTrue
			switch {
			case condition.Type == apiextensionsv1.Established && yes:
				return true, nil
			case condition.Type == apiextensionsv1.NamesAccepted && !yes:
				return false, fmt.Errorf("its names are taken: %s", condition.Message)
			case !yes:
				last = condition.Message
			}
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("CustomResourceDefinition %s is not served yet (%s): %w", name, last, err)
	}
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %s is not served: %w", name, err)
	}
	return nil
}
