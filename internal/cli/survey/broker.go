package survey

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Broker is the broker as the user reaches it.
type Broker struct {
	Connection
	clock     *serverClock
	Namespace string
	// via names the credential that is used.
	via        string
	ClusterSet *v1alpha1.ClusterSet
	// Problem is why it cannot be read; then the rest may be empty.
	Problem error
	// refused reports whether it answered, but does not accept the credential.
	refused bool
}

// FindBroker opens the broker of clusters: with the credential of the first member whose credential
// it accepts, or else in the first cluster that is a broker itself, in the namespace given.
func FindBroker(ctx context.Context, clusters []*Cluster, namespace string) *Broker {
	var first *Broker
	// A server that does not answer is not asked with another credential: each attempt may take the
	// whole timeout.
	unreachable := map[string]bool{}
	for _, c := range clusters {
		if c.Membership == nil || unreachable[c.Membership.Server] {
			continue
		}
		b := OpenBroker(ctx, Connection{Config: c.brokerConfig()}, c.Membership.Namespace, "cluster "+c.ID+", with its own credential")
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

// noBroker returns why the clusters do not lead to a broker.
func noBroker(clusters []*Cluster) error {
	for _, c := range clusters {
		switch {
		case c.Problem != nil:
			return fmt.Errorf("no cluster could be asked for the address of the broker (%s: %w)", c.Name(), c.Problem)
		case c.IsMember():
			return fmt.Errorf("%s; ask the broker as its admin with --broker-context", c.MembershipProblem)
		}
	}
	return errors.New("none of the clusters looked into is a member of a clusterset, or a broker: " +
		"choose another --context, or join it (seamark join)")
}

// OpenBroker opens the broker in a namespace and reads its ClusterSet, which shows that it answers
// and accepts the credential. via names the credential in messages.
func OpenBroker(ctx context.Context, c Connection, namespace, via string) *Broker {
	b := &Broker{Namespace: namespace, via: via}
	if b.Connection, b.clock, b.Problem = withTimeout(c); b.Problem != nil {
		return b
	}
	var sets v1alpha1.ClusterSetList
	err := b.Client.List(ctx, &sets, client.InNamespace(namespace))
	if err != nil {
		cause, text := objects.ErrorCause(err)
		if b.refused = cause == objects.CauseUnauthorized || cause == objects.CauseForbidden; b.refused {
			b.Problem = fmt.Errorf("the broker at %s does not accept %s: was the cluster removed, or its credential revoked? (%s)",
				b.Config.Host, via, text)
		} else {
			b.Problem = fmt.Errorf("the broker at %s does not answer %s: %s", b.Config.Host, via, text)
		}
		return b
	}
	if len(sets.Items) == 0 {
		b.Problem = fmt.Errorf("there is no ClusterSet in namespace %s of %s", namespace, b.Config.Host)
		return b
	}
	b.ClusterSet = &sets.Items[0]
	return b
}
