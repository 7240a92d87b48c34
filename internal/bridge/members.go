package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
)

// leaseDuration is how long after its last renewal a bridged cluster counts as alive. It is longer
// than that of an agent: the bridge is not in that cluster, so its silence says less, and a second
// replica takes half a minute to become the leader.
const leaseDuration = time.Minute

// bridged is a Lighthouse cluster whose membership the bridge holds.
type bridged struct {
	membership objects.Membership
	credential *member.Credential
	renewal    *member.Renewal
	heartbeat  *member.Heartbeat
	// direct reads and writes Seamark's broker with this cluster's credential. cached is the same, but
	// reads from the cache that all bridged clusters share.
	direct, cached client.Client
	writer         *apply.Writer
}

// secretsOf returns the names of the Secrets of a Lighthouse cluster's membership. The user applies
// the invitation; the bridge keeps the membership in the other one.
func secretsOf(cluster string) member.SecretNames {
	return member.SecretNames{Invitation: objects.BridgeInvitation(cluster), Membership: objects.BridgeMembership(cluster)}
}

// takeUp returns the membership of a Lighthouse cluster.
func (b *bridge) takeUp(ctx context.Context, cluster string) (objects.Membership, error) {
	names := secretsOf(cluster)
	memberships := &member.Memberships{Client: b.local, Log: b.Log.WithName("membership").WithValues("member", cluster), Secrets: names}
	secret, m, err := memberships.TakeUp(ctx)
	var none *member.NotMemberError
	switch {
	case errors.As(err, &none):
		return m, fmt.Errorf("there is no usable invitation for the Lighthouse cluster %s in Secret %s/%s (%w): "+
			"run seamark broker invite %s, and apply it under that name", cluster, objects.AgentNamespace, names.Invitation, err, cluster)
	case err != nil:
		return m, err
	case m.ClusterID != cluster:
		return m, fmt.Errorf("secret %s/%s is the invitation of cluster %s, want that of %s: apply the right one",
			objects.AgentNamespace, names.Invitation, m.ClusterID, cluster)
	}
	return m, member.CheckSecret(secret, m)
}

// join sets up what makes a Lighthouse cluster a member: its credential and its lease.
func (b *bridge) join(m objects.Membership) (*bridged, error) {
	log := b.Log.WithValues("member", m.ClusterID)
	c := &bridged{membership: m, credential: member.NewCredential(m.Token)}
	cfg := b.memberConfig(c)
	cfg.Wrap(member.NewTransport().Wrap)
	var err error
	if c.direct, err = client.New(cfg, client.Options{Scheme: b.scheme, Mapper: newMapper()}); err != nil {
		return nil, fmt.Errorf("set up the connection to Seamark's broker as %s: %w", m.ClusterID, err)
	}
	c.renewal = &member.Renewal{
		Credential: c.credential, Membership: m, Local: b.local, Broker: c.direct, Log: log.WithName("credential"), Secrets: secretsOf(m.ClusterID),
	}
	elected := make(chan struct{})
	close(elected) // members run on the leader only
	c.heartbeat = &member.Heartbeat{
		ClusterID: m.ClusterID, ClusterSet: m.ClusterSet, Namespace: m.Namespace, Holder: b.holder, Client: c.direct, Log: log.WithName("heartbeat"),
		RenewEvery: b.RenewEvery, LeaseDuration: b.LeaseDuration, Elected: elected, LeaderNonce: b.leaderNonce(),
		Stretch: func() float64 { return 1 },
		// Leases are not watched here. A broker that was restored shows in the version of the lease
		// itself, and in watches that resume.
		NewestLease: func() int64 { return 0 }, WatchedLease: func() int64 { return math.MaxInt64 },
		Watching:         func() bool { return false },
		OnBrokerRestored: b.seamarkTransport.RestartWatches,
		// Not known: after a long silence the heartbeat then asks the broker.
		Demoted: func() (demoted, known bool) { return false, false },
	}
	return c, nil
}

// connect sets up the member's writes, which are decided from a cache.
func (c *bridged) connect(cfg *rest.Config, scheme *runtime.Scheme, reader client.Reader) error {
	var err error
	c.cached, err = client.New(cfg, client.Options{Scheme: scheme, Mapper: newMapper(), Cache: &client.CacheOptions{Reader: reader}})
	if err != nil {
		return fmt.Errorf("set up the connection to Seamark's broker as %s: %w", c.membership.ClusterID, err)
	}
	c.writer = apply.NewWriter(c.cached)
	return nil
}

// run adds the tasks of a member to the manager. All run on the leader: a replica that becomes it
// first reads the token that its predecessor renewed.
func (c *bridged) run(m manager.Manager) error {
	return errors.Join(
		m.Add(manager.RunnableFunc(c.renewal.Start)),
		m.Add(manager.RunnableFunc(c.heartbeat.Start)),
		m.Add(manager.RunnableFunc(c.reportVersion)),
	)
}

// reportVersion writes the version of the bridge into the status of the member's Cluster, where
// other members show the version of an agent.
func (c *bridged) reportVersion(ctx context.Context) error {
	for {
		cluster := &v1alpha1.Cluster{}
		err := c.direct.Get(ctx, types.NamespacedName{Namespace: c.membership.Namespace, Name: c.membership.ClusterID}, cluster)
		if err == nil && cluster.Status.AgentVersion != version.String() {
			cluster.Status.AgentVersion = version.String()
			err = c.direct.Status().Update(ctx, cluster)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Second): // the broker is away, or another process wrote it
		}
	}
}

// usable reports whether the bridge may write as this member.
func (c *bridged) usable() bool {
	return c.heartbeat.HoldsClusterID() && c.heartbeat.ClusterIDTaken() == nil
}

// readHolder returns what identifies this bridge as the holder of leases. It differs from what
// identifies an agent of the same cluster.
func (b *bridge) readHolder(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := b.local.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	b.holder = "bridge-" + string(system.UID)
	return nil
}

// leaderNonce returns a function that returns the nonce of the leader; see member.Heartbeat.
func (b *bridge) leaderNonce() func(context.Context) (string, error) {
	if !b.LeaderElection {
		nonce := objects.LeaderNonce(rand.Text())
		return func(context.Context) (string, error) { return nonce, nil }
	}
	return func(ctx context.Context) (string, error) {
		lease := &coordinationv1.Lease{}
		if err := b.local.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BridgeName}, lease); err != nil {
			return "", err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder == "" {
			return "", errors.New("no replica is the leader")
		}
		return objects.LeaderNonce(holder), nil
	}
}
