// Package survey reads clusters and their broker for the commands that look at them. What it reads
// becomes the input of the pure packages status, explain and doctor. A cluster or broker that
// cannot be read is no error: its Problem is the reason, and the rest is still of use.
package survey

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// requestTimeout is how long an API server may take to answer before it counts as unreachable: a
// user waits at the terminal.
const requestTimeout = 10 * time.Second

// Connection is an API server and how to reach it.
type Connection struct {
	Client client.Client
	Config *rest.Config
}

// Cluster is a cluster as the user reaches it. Context and Connection are given; Identify reads the
// rest.
type Cluster struct {
	// Context is the name of its context; empty for the current one.
	Context string
	Connection
	clock *serverClock
	// ID and ClusterSet are the values of its ClusterProperties; empty when it is no member.
	ID, ClusterSet string
	// Membership is nil when there is none or it cannot be read; MembershipProblem is then the reason.
	Membership        *objects.Membership
	MembershipProblem string
	// Removed is when the cluster was removed from its clusterset, if its agent has found that.
	Removed string
	// Problem is why it cannot be read at all.
	Problem error

	// Guard changes the configuration with which the broker is asked as this member; nil does not.
	Guard func(*rest.Config) *rest.Config
	// ProxyToken returns the token with which proxies are asked; if nil, one is requested each time.
	ProxyToken func(context.Context) (string, error)
}

// brokerConfig returns the configuration with which the broker is asked as this member.
func (c *Cluster) brokerConfig() *rest.Config {
	config := c.Membership.Config()
	if c.Guard != nil {
		config = c.Guard(config)
	}
	return config
}

// Name returns the id of the cluster, or the name of its context if it has none.
func (c *Cluster) Name() string {
	switch {
	case c.ID != "":
		return c.ID
	case c.Context != "":
		return c.Context
	}
	return "(current)"
}

// IsMember reports whether the cluster is a member of a clusterset.
func (c *Cluster) IsMember() bool {
	return c.Removed == "" && (c.ClusterSet != "" || c.Membership != nil)
}

// withTimeout returns a connection whose requests do not hang, and the clock of its server.
func withTimeout(c Connection) (Connection, *serverClock, error) {
	config, clock := rest.CopyConfig(c.Config), &serverClock{}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.Wrap(clock.wrap)
	opened, err := brokeradmin.NewClient(config)
	return Connection{Client: opened, Config: config}, clock, err
}

// Identify reads the id and membership of all clusters at the same time.
func Identify(ctx context.Context, clusters []*Cluster) {
	var reading sync.WaitGroup
	for _, c := range clusters {
		reading.Go(func() { c.identify(ctx) })
	}
	reading.Wait()
}

// identify reads the id and membership of a cluster. The user may not be allowed to read either.
func (c *Cluster) identify(ctx context.Context) {
	if c.Connection, c.clock, c.Problem = withTimeout(c.Connection); c.Problem != nil {
		return
	}
	for name, value := range map[string]*string{aboutv1beta1.PropertyClusterID: &c.ID, aboutv1beta1.PropertyClusterSet: &c.ClusterSet} {
		p, err := GetIfServed(ctx, c.Client, types.NamespacedName{Name: name}, &aboutv1beta1.ClusterProperty{})
		switch {
		case p != nil:
			*value = p.Spec.Value
		case err != nil && !apierrors.IsForbidden(err):
			c.Problem = errors.New(objects.ErrorText(err))
			return
		}
	}
	secret, err := GetIfServed(ctx, c.Client,
		types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, &corev1.Secret{})
	switch {
	case err != nil:
		c.MembershipProblem = "the membership Secret cannot be read: " + objects.ErrorText(err)
		return
	case secret == nil:
		c.MembershipProblem = "the cluster has no membership Secret " + objects.AgentNamespace + "/" + objects.MembershipSecret
		return
	case len(secret.Data) == 0:
		c.MembershipProblem = "the agent has not taken up an invitation yet: see its log (kubectl -n " + objects.AgentNamespace +
			" logs deployment/seamark-agent)"
		return
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		c.MembershipProblem = err.Error()
		return
	}
	m.DataPlane = cmp.Or(c.dataPlaneOfAgent(ctx), m.DataPlane)
	c.Membership, c.Removed = &m, objects.RemovedAt(secret)
	if c.ID == "" {
		c.ID = m.ClusterID
	}
}
