package survey

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// hub is the broker as the user reaches it.
type Broker struct {
	Connection
	clock     *serverClock
	Namespace string
	// via says as whom.
	via        string
	ClusterSet *v1alpha1.ClusterSet
	// problem is why it cannot be asked; then the rest may be empty. refused tells that it answered, but not this user.
	Problem error
	refused bool
}

// FindBroker opens the broker of clusters: as one of the members, or else where a cluster is the
// broker itself, in the namespace given. A broker that cannot be asked has a Problem.
func FindBroker(ctx context.Context, clusters []*Cluster, namespace string) *Broker {
	var first *Broker
	// An unreachable server is unreachable with every credential: asking again would only take as
	// long again.
	unreachable := map[string]bool{}
	for _, c := range clusters {
		if c.Membership == nil || unreachable[c.Membership.Server] {
			continue
		}
		b := OpenBroker(ctx, Connection{Config: c.Membership.Config()}, c.Membership.Namespace, "cluster "+c.ID+", with its own credential")
		if b.Problem == nil {
			return b
		}
		unreachable[c.Membership.Server] = !b.refused
		if first == nil {
			first = b
		}
	}
	for _, c := range clusters {
		if c.Problem != nil {
			continue
		}
		if b := OpenBroker(ctx, c.Connection, namespace, "context "+c.Name()); b.Problem == nil {
			return b
		}
	}
	if first != nil {
		return first
	}
	return &Broker{Problem: noBroker(clusters)}
}

// noWay puts into words why there is no way to the broker.
func noBroker(sites []*Cluster) error {
	for _, site := range sites {
		switch {
		case site.Problem != nil:
			return fmt.Errorf("no cluster could be asked for the way to the broker (%s: %w)", site.Name(), site.Problem)
		case site.IsMember():
			return fmt.Errorf("%s; ask the broker as its admin with --broker-context", site.MembershipProblem)
		}
	}
	return errors.New("none of the clusters looked into is a member of a clusterset, or a broker: choose another --context, or join it (seamark join)")
}

// openHub asks a broker for its clusterset, which shows that it answers and lets the user in.
func OpenBroker(ctx context.Context, c Connection, namespace, via string) *Broker {
	h := &Broker{Namespace: namespace, via: via}
	if h.Connection, h.clock, h.Problem = timed(c); h.Problem != nil {
		return h
	}
	var sets v1alpha1.ClusterSetList
	err := h.Client.List(ctx, &sets, client.InNamespace(namespace))
	if err != nil {
		cause, text := objects.ErrorCause(err)
		if h.refused = cause == objects.CauseUnauthorized || cause == objects.CauseForbidden; h.refused {
			h.Problem = fmt.Errorf("the broker at %s does not accept %s: was the cluster removed, or its credential revoked? (%s)", h.Config.Host, via, text)
		} else {
			h.Problem = fmt.Errorf("the broker at %s does not answer %s: %s", h.Config.Host, via, text)
		}
		return h
	}
	if len(sets.Items) == 0 {
		h.Problem = fmt.Errorf("there is no ClusterSet in namespace %s of %s", namespace, h.Config.Host)
		return h
	}
	h.ClusterSet = &sets.Items[0]
	return h
}
