package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// takeUpRetry is how long to wait after a membership could not be stored.
const takeUpRetry = 5 * time.Second

// WatchMembership uses the token that joining again has stored. It restores the membership if
// another client emptied its Secret. It returns a NotMemberError if the
// cluster left, and ErrMembershipChanged if it joined as another member: the agent must not go on
// then, or it would restore the objects that leaving deletes. It is run in all replicas: each may
// have to renew the lease.
func (r *Renewal) WatchMembership(ctx context.Context, c cache.Cache, memberships *Memberships) error {
	ended, emptied := make(chan error, 1), make(chan struct{}, 1)
	check := func(secret *corev1.Secret) {
		if memberships.emptied(secret) != nil {
			signal(emptied)
			return
		}
		if err := r.adoptToken(secret); err != nil {
			select {
			case ended <- err:
			default: // another error was reported before
			}
		}
	}
	stop, err := watchSecrets(ctx, c, check)
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	defer stop()
	// A replica that was not the leader may have missed that the cluster left.
	if _, err := r.secret(ctx); apierrors.IsNotFound(err) {
		check(nil)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-emptied:
			memberships.takeUpOrRetry(ctx, emptied)
		}
	}
}

// takeUpOrRetry calls TakeUp, and signals to do so again if it failed.
func (s *Memberships) takeUpOrRetry(ctx context.Context, again chan<- struct{}) {
	_, _, err := s.TakeUp(ctx)
	var none *NotMemberError
	if err == nil || errors.As(err, &none) || ctx.Err() != nil {
		return // WatchMembership finds that the membership ended
	}
	s.Log.Error(err, "cannot store the membership; retrying", "interval", takeUpRetry)
	time.AfterFunc(takeUpRetry, func() { signal(again) })
}

// WatchInvitation stores what a new or changed invitation says. WatchMembership then uses it. An
// invitation that is deleted changes nothing. It is run in all replicas: a replica that is not the
// leader may be the only one that runs.
func (s *Memberships) WatchInvitation(ctx context.Context, c cache.Cache) error {
	changed := make(chan struct{}, 1)
	stop, err := watchSecrets(ctx, c, func(secret *corev1.Secret) {
		if secret != nil {
			signal(changed)
		}
	})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.InvitationSecret, err)
	}
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		s.takeUpOrRetry(ctx, changed)
	}
}

// watchSecrets calls check with each version of the Secret of a cache, and with nil when it is
// deleted, until stop is called.
func watchSecrets(ctx context.Context, c cache.Cache, check func(*corev1.Secret)) (stop func(), err error) {
	informer, err := c.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(trigger.EventHandler[*corev1.Secret]{
		Add:    check,
		Update: func(_, secret *corev1.Secret) { check(secret) },
		Delete: func(*corev1.Secret, bool) { check(nil) },
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = informer.RemoveEventHandler(registration) }, nil // fails only for an unknown registration
}

// adoptToken uses the token in a Secret whose membership is otherwise the one the agent started
// with.
func (r *Renewal) adoptToken(secret *corev1.Secret) error {
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return &NotMemberError{fmt.Errorf("the membership ended: %w", err)}
	}
	if err := CheckSecret(secret, m); err != nil {
		return err
	}
	token := m.Token
	m.Token = r.Membership.Token
	if !equality.Semantic.DeepEqual(m, r.Membership) {
		return ErrMembershipChanged
	}
	held := storedToken(token, r.now())
	if requested := r.requested.Load(); requested != nil && requested.text == token {
		held = requested
	}
	if r.Credential.hold(held) {
		r.Log.Info("using the stored token for the broker")
	}
	return nil
}
