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
	// attempts is how often a write is retried when other clients change the same CRD. Each conflict
	// means that another client made progress, so a few attempts are enough.
	attempts = 10
	// establishTimeout is the timeout for the API server to serve a new kind. It usually takes well
	// under a second.
	establishTimeout = 30 * time.Second
	establishPoll    = 50 * time.Millisecond
)

// Outcome is what was done with one CRD, for users and for -o json.
type Outcome struct {
	// Name of the CRD.
	Name string `json:"name"`
	// Action that was taken. After each of them the API server serves what Seamark needs.
	Action Action `json:"action"`
	// Reason for the action, as text.
	Reason string `json:"reason"`
}

// Plan returns what Install would do, without doing it. The outcomes include CRDs that Install
// would refuse to change.
func Plan(ctx context.Context, c client.Client, set Set) ([]Outcome, error) {
	definitions, err := definitionsFor(ctx, c, set)
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

// Install installs the CRDs of a set and waits until the API server serves them. If an existing CRD
// of another tool cannot be used, it writes nothing and returns an error that says what to do.
// Installing again writes nothing. Several installers at the same time produce the same result.
//
// The client's scheme must contain apiextensions.k8s.io/v1, and the client must read from the API
// server, not from a cache. The outcomes are complete exactly when the error is nil.
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
	definitions, err := definitionsFor(ctx, c, set)
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
		if err := waitUntilServed(ctx, c, definition.CRD.Name); err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// install decides and writes. It decides again if another client has changed the CRD meanwhile. It
// returns the decision that was carried out.
func install(ctx context.Context, c client.Client, bundled Definition) (Decision, error) {
	for range attempts {
		existing, err := read(ctx, c, bundled.CRD.Name)
		if err != nil {
			return Decision{}, err
		}
		decision := Decide(existing, bundled)
		switch decision.Action {
		case Create:
			err = c.Create(ctx, bundled.CRD.DeepCopy())
		case Update:
			err = c.Update(ctx, mergedCRD(existing, bundled.CRD))
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
	return Decision{}, errors.New("other clients kept changing it: find out which, then try again")
}

// read returns a CRD, or nil if it does not exist.
func read(ctx context.Context, c client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// waitUntilServed waits until the API server serves the kind. It fails at once if another CRD has
// the names, because waiting does not free them.
func waitUntilServed(ctx context.Context, c client.Client, name string) error {
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
