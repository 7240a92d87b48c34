package brokeradmin

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	discoveryPoll = 100 * time.Millisecond
	// discoveryTimeout is longer than an API server takes to list a kind that it serves. After it the
	// policies are installed anyway; they become ready later then.
	discoveryTimeout = 10 * time.Second

	policyTimeout = time.Minute
	policyPoll    = 250 * time.Millisecond
)

// discoveryClient is a client that can also list the kinds that an API server discovers.
type discoveryClient struct {
	client.Client
	discovery discovery.DiscoveryInterface
}

// waitForDiscovery waits until the API server lists all kinds of a set in its discovery, which
// happens shortly after it serves them. Admission looks up the parameter kinds of policies there:
// at once for the first policy that has one, and then only every 30 seconds. A policy that is
// installed too early therefore denies every request it matches for that long.
func waitForDiscovery(ctx context.Context, c client.Client, set crds.Set) error {
	discovering, ok := c.(*discoveryClient)
	if !ok {
		return nil
	}
	definitions, err := crds.Definitions(set)
	if err != nil {
		return err
	}
	wanted := make([]schema.GroupKind, 0, len(definitions))
	for _, d := range definitions {
		wanted = append(wanted, schema.GroupKind{Group: d.CRD.Spec.Group, Kind: d.CRD.Spec.Names.Kind})
	}
	err = wait.PollUntilContextTimeout(ctx, discoveryPoll, discoveryTimeout, true, func(context.Context) (bool, error) {
		// Ignore the error: API groups of others may be unavailable at the moment.
		_, lists, _ := discovering.discovery.ServerGroupsAndResources()
		served := map[schema.GroupKind]bool{}
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				continue
			}
			for _, r := range list.APIResources {
				served[schema.GroupKind{Group: version.Group, Kind: r.Kind}] = true
			}
		}
		for _, kind := range wanted {
			if !served[kind] {
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // the policies become ready later
	}
	return err
}

// retryUntilPoliciesReady retries while the API server cannot evaluate a policy because the CRD of
// its parameter was installed a moment ago. Admission looks for new kinds only every 30 seconds and
// denies every matching request until then.
func retryUntilPoliciesReady(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, policyPoll, policyTimeout, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		if objects.IsPolicyNotReady(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}
