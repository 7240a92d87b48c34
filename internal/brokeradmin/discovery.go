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
	// discoveryPatience is more than an API server takes to show a kind that it serves. Beyond it nothing is lost but the time saved.
	discoveryTimeout = 10 * time.Second

	policyTimeout = time.Minute
	policyPoll     = 250 * time.Millisecond
)

// discovering is a client that can also ask which kinds an API server shows.
type discoveryClient struct {
	client.Client
	discovery discovery.DiscoveryInterface
}

// shown waits until the API server shows all kinds of a set in its discovery, which is a little after it serves them. Its admission looks there for the
// parameter kinds of policies: at once for the first policy that has one, and then only every thirty seconds. A policy that is installed too
// early therefore refuses whatever it matches for that long.
func waitForDiscovery(ctx context.Context, c client.Client, set crds.Set) error {
	asking, ok := c.(*discoveryClient)
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
		// Groups of others that cannot be asked just now are no reason to wait or to fail.
		_, lists, _ := asking.discovery.ServerGroupsAndResources()
		there := map[schema.GroupKind]bool{}
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				continue
			}
			for _, r := range list.APIResources {
				there[schema.GroupKind{Group: version.Group, Kind: r.Kind}] = true
			}
		}
		for _, kind := range wanted {
			if !there[kind] {
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // the policies will settle later
	}
	return err
}

// whilePoliciesSettle tries again while the API server cannot yet evaluate a policy whose parameter is of a kind that was
// installed a moment ago: its admission looks for new kinds only every thirty seconds, and refuses until then.
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
