package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// NotMemberError means that this cluster is no member, or not yet: there is no usable invitation.
type NotMemberError struct{ Reason error }

// Error implements error.
func (e *NotMemberError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *NotMemberError) Unwrap() error { return e.Reason }

func notMember(format string, args ...any) error {
	return &NotMemberError{fmt.Errorf(format, args...)}
}

// SecretNames are the names of the two Secrets of a membership. A bridge has those of several
// clusters in one namespace, none of which need be that of the cluster it runs in.
type SecretNames struct{ Invitation, Membership string }

func (n SecretNames) invitation() string { return cmp.Or(n.Invitation, objects.InvitationSecret) }
func (n SecretNames) membership() string { return cmp.Or(n.Membership, objects.MembershipSecret) }

// Memberships reads and writes the two Secrets of this cluster's membership.
type Memberships struct {
	Client client.Client // uncached
	Log    logr.Logger
	// Held returns the membership with which this agent runs, if the Secret with this UID is the one
	// that held it. It is nil before the agent runs.
	Held func(types.UID) *objects.Membership
	// Secrets are the names of the two; those of an agent when empty.
	Secrets SecretNames

	reported string // what was logged about the invitation last
}

// TakeUp returns the membership of this cluster, after it has stored what an invitation changes. It
// restores the membership of a running agent whose Secret another client emptied. A cluster without
// a membership gets a NotMemberError. Any replica may call it: the second one finds nothing to
// write.
func (s *Memberships) TakeUp(ctx context.Context) (secret *corev1.Secret, m objects.Membership, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, m, err = s.takeUp(ctx)
		return err
	})
	return secret, m, err
}

func (s *Memberships) takeUp(ctx context.Context) (*corev1.Secret, objects.Membership, error) {
	var none objects.Membership
	secret, err := s.read(ctx, s.Secrets.membership())
	if err != nil {
		return nil, none, err
	}
	invitation, problem, err := s.invitation(ctx)
	if err != nil {
		return nil, none, err
	}
	if secret == nil && (invitation != nil || problem != nil) {
		return nil, none, notMember("secret %s/%s, in which the agent keeps its membership, does not exist: apply the chart again",
			objects.AgentNamespace, s.Secrets.membership())
	}
	stored, broken := objects.MembershipFrom(secret)
	held := s.emptied(secret)
	if held != nil {
		stored, broken = *held, nil
	}
	switch {
	case invitation == nil && problem != nil && broken != nil:
		return nil, none, &NotMemberError{problem}
	case invitation == nil && broken != nil:
		return nil, none, &NotMemberError{broken}
	case invitation == nil:
		s.report(problem)
		if held != nil {
			return s.store(ctx, secret, stored)
		}
		return secret, stored, nil
	case broken != nil:
		if s.Secrets == (SecretNames{}) { // of this cluster
			if err := s.checkIdentity(ctx, *invitation); err != nil {
				return nil, none, err
			}
		}
		return s.store(ctx, secret, *invitation)
	}
	taken, err := objects.TakeUp(*invitation, &stored)
	if err != nil && objects.RemovedAt(secret) != "" {
		taken, err = *invitation, nil // the earlier membership has ended
	}
	s.report(err)
	if held == nil && equality.Semantic.DeepEqual(taken, stored) {
		return secret, stored, nil
	}
	if taken.Token != stored.Token {
		objects.ClearRemoved(secret)
	}
	return s.store(ctx, secret, taken)
}

// emptied returns the membership of this running agent if its Secret exists and holds nothing. A
// tool that replaces objects by what the chart has empties it. Leaving deletes it, so a Secret with
// another UID is not restored.
func (s *Memberships) emptied(secret *corev1.Secret) *objects.Membership {
	if s.Held == nil || secret == nil || len(secret.Data) > 0 {
		return nil
	}
	return s.Held(secret.UID)
}

// report logs what is wrong with an invitation while the agent goes on without it.
// It does so once for each problem.
func (s *Memberships) report(problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text != "" && text != s.reported {
		s.Log.Error(problem, "not using the invitation; the membership stays as it was", "secret", s.Secrets.invitation())
	}
	s.reported = text
}

// invitation reads what the user applied, or what is wrong with it. Both are nil without one.
func (s *Memberships) invitation(ctx context.Context) (m *objects.Membership, problem, err error) {
	secret, err := s.read(ctx, s.Secrets.invitation())
	if apierrors.IsForbidden(err) { // the role is that of a chart without invitations
		return nil, err, nil
	}
	if err != nil || secret == nil {
		return nil, nil, err
	}
	invitation, problem := objects.MembershipFrom(secret)
	if problem != nil {
		return nil, problem, nil
	}
	return &invitation, nil, nil
}

func (s *Memberships) store(ctx context.Context, secret *corev1.Secret, m objects.Membership) (*corev1.Secret, objects.Membership, error) {
	secret.Data = m.Secret().Data
	if err := s.Client.Update(ctx, secret); err != nil {
		return nil, m, fmt.Errorf("store the membership in secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	s.Log.Info("stored the membership", "clusterset", m.ClusterSet, "broker", m.Server)
	return secret, m, nil
}

// read returns a Secret of the agent's namespace, nil if it does not exist.
func (s *Memberships) read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, name, err)
	}
	return secret, nil
}

// checkIdentity fails if a cluster that has no membership yet has another identity already: other
// tools may rely on it.
func (s *Memberships) checkIdentity(ctx context.Context, m objects.Membership) error {
	for _, check := range []struct{ property, want string }{
		{aboutv1beta1.PropertyClusterSet, m.ClusterSet}, {aboutv1beta1.PropertyClusterID, m.ClusterID},
	} {
		p := &aboutv1beta1.ClusterProperty{}
		err := s.Client.Get(ctx, types.NamespacedName{Name: check.property}, p)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read ClusterProperty %s: %w", check.property, err)
		}
		if err == nil && p.Spec.Value != check.want {
			return notMember("the invitation is for cluster %s of clusterset %s, but ClusterProperty %s of this cluster is %s: "+
				"apply an invitation that agrees with it, or run seamark leave and change the property",
				m.ClusterID, m.ClusterSet, check.property, p.Spec.Value)
		}
	}
	return nil
}

// ErrMembershipChanged means that the agent must start over, because more than its token changed.
var ErrMembershipChanged = errors.New("the membership changed: the agent starts over")
