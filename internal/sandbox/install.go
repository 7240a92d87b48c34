//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/seamark-dev/seamark/internal/broker"
)

// install makes the clusters a clusterset with the broker on the first: the one place where the sandbox and Seamark meet. It does what
// `seamark broker deploy` and `seamark join --broker-context` do, and again changes nothing.
func (s *Sandbox) install(ctx context.Context, r *report) error {
	hub := s.plan.clusters[0]
	hubConfig, err := hub.config()
	if err != nil {
		return err
	}
	hubClient, err := broker.NewClient(hubConfig)
	if err != nil {
		return err
	}
	err = r.step("broker is deployed on "+hub.name, func() error {
		_, err := broker.Deploy(ctx, hubClient, broker.DeployOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return s.forEach(ctx, func(ctx context.Context, c cluster) error {
		return r.step(c.name+": joined the clusterset", func() error { return s.join(ctx, c, hub) })
	})
}

// join invites a cluster, or renews the invitation of one that is a member, and joins it.
func (s *Sandbox) join(ctx context.Context, c, hub cluster) error {
	hubConfig, err := hub.config()
	if err != nil {
		return err
	}
	hubClient, err := broker.NewClient(hubConfig)
	if err != nil {
		return err
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	client, err := broker.NewClient(config)
	if err != nil {
		return err
	}
	here, err := broker.ReadLocal(ctx, client)
	if err != nil {
		return err
	}
	if here.Membership != nil && here.Membership.ClusterID == c.name {
		return nil // its agent renews its credential
	}
	invitation := broker.InviteOptions{Server: hub.server(), CAData: hubConfig.CAData, For: here.KubeSystemUID}
	invited, err := broker.Invite(ctx, hubClient, c.name, invitation)
	if errors.Is(err, broker.ErrInUse) {
		invitation.Renew = true
		invited, err = broker.Invite(ctx, hubClient, c.name, invitation)
	}
	if err != nil {
		return fmt.Errorf("inviting cluster %s: %w", c.name, err)
	}
	_, err = broker.Join(ctx, client, invited.Membership, broker.JoinOptions{DataPlane: s.state.DataPlane})
	return err
}
