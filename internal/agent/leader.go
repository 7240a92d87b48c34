package agent

import (
	"context"
	"crypto/rand"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/internal/objects"
)

// everyReplica is a task that runs in all replicas, not only in the leader.
type everyReplica func(context.Context) error

// Start implements manager.Runnable.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// elected returns a channel that is closed when this replica is the leader. Without leader election
// it is from the start.
func (a *agent) elected() <-chan struct{} {
	if a.LeaderElection {
		return a.manager.Elected()
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// leaderNonce returns a function that returns the nonce of this cluster's leader: what identifies
// it in the replicas' election, or without one a value of this process alone.
func (a *agent) leaderNonce() func(context.Context) (string, error) {
	if !a.LeaderElection {
		nonce := objects.LeaderNonce(rand.Text())
		return func(context.Context) (string, error) { return nonce, nil }
	}
	return func(ctx context.Context) (string, error) {
		lease := &coordinationv1.Lease{}
		if err := a.localDirect.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.AgentLease}, lease); err != nil {
			return "", err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder == "" {
			return "", errors.New("no replica is the leader")
		}
		return objects.LeaderNonce(holder), nil
	}
}
