// Package survey reads clusters and their broker for the commands that look at them. What it reads
// becomes the input of the pure packages status, explain and doctor. A cluster or broker that cannot
// be read is no error: its Problem says why, and the rest is still of use.
package survey

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// lookTimeout is how long an API server may take to answer before it counts as unreachable: people wait for the answer.
const requestTimeout = 10 * time.Second

// Connection is an API server and how to reach it.
type Connection struct {
	Client client.Client
	Config *rest.Config
}

// site is a cluster as the user reaches it.
type Cluster struct {
	// context is empty for the current one.
	Context string
	Connection
	clock *serverClock
	// id and clusterSet are what the cluster says of itself; empty when it is no member.
	ID, ClusterSet string
	// membership is nil when there is none, or when it cannot be read; then whyNoMembership tells.
	Membership        *objects.Membership
	MembershipProblem string
	// problem is why it cannot be looked into at all.
	Problem error
}

// name is what a site is called in tables.
func (s *Cluster) Name() string {
	switch {
	case s.ID != "":
		return s.ID
	case s.Context != "":
		return s.Context
	}
	return "(current)"
}

func (s *Cluster) IsMember() bool { return s.ClusterSet != "" || s.Membership != nil }

// timed makes a connection end requests that hang, and lets it learn the server's clock.
func timed(c Connection) (Connection, *serverClock, error) {
	config, clock := rest.CopyConfig(c.Config), &serverClock{}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.Wrap(clock.wrap)
	opened, err := brokeradmin.NewClient(config)
	return Connection{Client: opened, Config: config}, clock, err
}

// Identify asks the API servers of contexts, by connection, who they are. A cluster that does
// not answer has a Problem; it is no error, because the others are still of use.
func Identify(ctx context.Context, opened []*Cluster) {
	var identifying sync.WaitGroup
	for _, c := range opened {
		identifying.Go(func() { c.identify(ctx) })
	}
	identifying.Wait()
}

// identify asks a cluster who it is. Whoever looks may not be allowed to read everything.
func (s *Cluster) identify(ctx context.Context) {
	if s.Connection, s.clock, s.Problem = timed(s.Connection); s.Problem != nil {
		return
	}
	for name, value := range map[string]*string{aboutv1beta1.PropertyClusterID: &s.ID, aboutv1beta1.PropertyClusterSet: &s.ClusterSet} {
		p := &aboutv1beta1.ClusterProperty{}
		err := s.Client.Get(ctx, types.NamespacedName{Name: name}, p)
		switch {
		case err == nil:
			*value = p.Spec.Value
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err), apierrors.IsForbidden(err):
		default:
			s.Problem = fmt.Errorf("%s", objects.ErrorText(err))
			return
		}
	}
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
	switch {
	case apierrors.IsNotFound(err):
		s.MembershipProblem = "the cluster has no membership Secret " + objects.AgentNamespace + "/" + objects.MembershipSecret
		return
	case err != nil:
		s.MembershipProblem = "the membership Secret cannot be read: " + objects.ErrorText(err)
		return
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		s.MembershipProblem = err.Error()
		return
	}
	s.Membership = &m
	if s.ID == "" {
		s.ID = m.ClusterID
	}
}
