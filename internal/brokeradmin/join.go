package brokeradmin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/adopt"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	brokerTimeout = 15 * time.Second

	deletionTimeout = 30 * time.Second
	deletionPoll    = 200 * time.Millisecond
)

// Local is the state of a cluster before it joins or leaves.
type Local struct {
	// KubeSystemUID identifies the cluster independently of its cluster id.
	KubeSystemUID string
	// ClusterID and ClusterSet are the values of its ClusterProperties.
	ClusterID  string
	ClusterSet string
	// Membership is nil when there is none, or when its Secret is invalid.
	Membership *objects.Membership
	// Secret holds the membership, and Invitation is what the user applied. Either is nil when there
	// is none. The Secret may be empty, as the chart creates it.
	Secret, Invitation *corev1.Secret
}

// isMember reports whether the cluster is a member, or is about to be one.
func (l Local) isMember() bool {
	return l.ClusterSet != "" || l.Invitation != nil || (l.Secret != nil && len(l.Secret.Data) > 0)
}

// ReadLocal reads the state of a cluster. A kind that is not installed yet has no objects.
func ReadLocal(ctx context.Context, c client.Client) (Local, error) {
	var l Local
	kubeSystem := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, kubeSystem); err != nil {
		return l, fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	l.KubeSystemUID = string(kubeSystem.UID)
	for name, value := range map[string]*string{aboutv1beta1.PropertyClusterID: &l.ClusterID, aboutv1beta1.PropertyClusterSet: &l.ClusterSet} {
		p := &aboutv1beta1.ClusterProperty{}
		if err := c.Get(ctx, types.NamespacedName{Name: name}, p); err != nil && !absent(err) {
			return l, fmt.Errorf("read ClusterProperty %s: %w", name, err)
		}
		*value = p.Spec.Value
	}
	var err error
	if l.Secret, err = readSecret(ctx, c, objects.MembershipSecret); err != nil {
		return l, err
	}
	if l.Invitation, err = readSecret(ctx, c, objects.InvitationSecret); err != nil {
		return l, err
	}
	if m, err := objects.MembershipFrom(l.Secret); err == nil {
		l.Membership = &m
	}
	return l, nil
}

// readSecret returns a Secret of the agent's namespace, nil if it does not exist.
func readSecret(ctx context.Context, c client.Client, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, name, err)
	}
	return secret, nil
}

// MayJoin returns an error if the cluster is already a member in another way: of another
// clusterset, with another id, or of a clusterset of the same name at another broker. Joining the
// same clusterset again is allowed.
func (l Local) MayJoin(m objects.Membership) error {
	const leave = "run seamark leave first"
	if l.ClusterSet != "" && l.ClusterSet != m.ClusterSet {
		return fmt.Errorf("this cluster is a member of clusterset %s: %s", l.ClusterSet, leave)
	}
	if l.ClusterSet != "" && l.ClusterID != "" && l.ClusterID != m.ClusterID {
		return fmt.Errorf("this cluster is a member of clusterset %s as %s, not as %s: %s", l.ClusterSet, l.ClusterID, m.ClusterID, leave)
	}
	old := l.Membership
	switch {
	case old == nil:
		return nil
	case old.ClusterSet != m.ClusterSet || old.ClusterID != m.ClusterID:
		return fmt.Errorf("this cluster is a member of clusterset %s as %s: %s", old.ClusterSet, old.ClusterID, leave)
	case m.Server != "" && old.Server != m.Server && !bytes.Equal(old.CAData, m.CAData):
		return fmt.Errorf("this cluster is a member of a clusterset %s at another broker (%s): %s", old.ClusterSet, old.Server, leave)
	}
	return nil
}

// JoinOptions are the choices of the user who joins a cluster.
type JoinOptions struct {
	// ClusterID is empty unless the user names an id.
	ClusterID string
	// DataPlane, when empty, is what the cluster had, or else DataPlaneService.
	DataPlane v1alpha1.DataPlane
	// UseClusterSetIP is the default of this cluster's exports that do not choose. When nil, it is
	// what the cluster had, or else the clusterset's default.
	UseClusterSetIP *bool
}

// JoinResult is what Join created or found.
type JoinResult struct {
	ClusterID  string             `json:"clusterID"`
	ClusterSet string             `json:"clusterSet"`
	Broker     string             `json:"broker"`
	DataPlane  v1alpha1.DataPlane `json:"dataPlane"`
	Steps      []Step             `json:"steps"`
}

// Join makes the cluster a member. It installs the CRDs, the invitation and what the agent takes up
// of it, the identity objects (with the name of the clusterset last) and the policies that guard
// them. Without Join, the chart and the agent write the same objects. Before it writes anything it
// checks that the cluster may join, that the broker accepts the credential, and that no other
// cluster uses the id. Joining again writes only what differs, and never replaces a token by an
// older one.
func Join(ctx context.Context, c client.Client, m objects.Membership, o JoinOptions) (JoinResult, error) {
	if err := m.Validate(); err != nil {
		return JoinResult{}, err
	}
	local, err := ReadLocal(ctx, c)
	if err != nil {
		return JoinResult{}, err
	}
	if m, err = local.planMembership(m, o); err != nil {
		return JoinResult{}, err
	}
	taken, err := objects.TakeUp(m, local.Membership)
	if err != nil {
		return JoinResult{}, err
	}
	err = checkBroker(ctx, taken, local.KubeSystemUID)
	if apierrors.IsUnauthorized(err) && taken.Token != m.Token {
		// The agent's own token is the newer one, by a clock that may have been wrong.
		taken = m
		err = checkBroker(ctx, taken, local.KubeSystemUID)
	}
	if err != nil {
		return JoinResult{}, err
	}
	joined := JoinResult{ClusterID: m.ClusterID, ClusterSet: m.ClusterSet, Broker: m.Server, DataPlane: m.DataPlane}
	joined.Steps, err = install(ctx, c, m, taken)
	if err != nil {
		return joined, fmt.Errorf("join clusterset %s (run it again to complete it): %w", m.ClusterSet, err)
	}
	return joined, nil
}

// planMembership returns the invitation with the settings to store, or an error if the cluster must
// not join with it.
func (l Local) planMembership(m objects.Membership, o JoinOptions) (objects.Membership, error) {
	existing := l.ClusterID
	if l.ClusterSet != "" && existing != "" && existing != m.ClusterID {
		return m, l.MayJoin(m) // a member's id cannot change, so do not suggest --clusterid
	}
	if _, err := ChooseID(o.ClusterID, existing, m.ClusterID, l.KubeSystemUID); err != nil {
		return m, err
	}
	if err := l.MayJoin(m); err != nil {
		return m, err
	}
	if _, err := objects.ParseDataPlane(string(o.DataPlane)); err != nil {
		return m, err
	}
	var old objects.Membership
	if l.Membership != nil {
		old = *l.Membership
	}
	m.DataPlane = cmp.Or(o.DataPlane, m.DataPlane, old.DataPlane, objects.DataPlaneOf("").Name)
	m.UseClusterSetIP = cmp.Or(o.UseClusterSetIP, m.UseClusterSetIP, old.UseClusterSetIP)
	return m, nil
}

// checkBroker reads from the broker, as the member, what the agent needs first. It clears the mark
// of a cluster that left and has not been removed since.
func checkBroker(ctx context.Context, m objects.Membership, holder string) error {
	config := m.Config()
	config.Timeout = brokerTimeout
	config.UserAgent = "seamark-join/" + m.ClusterID
	c, err := NewClient(config)
	if err != nil {
		return fmt.Errorf("the broker at %s: %w", m.Server, err)
	}
	lease := &coordinationv1.Lease{}
	for name, obj := range map[string]client.Object{m.ClusterSet: &v1alpha1.ClusterSet{}, m.ClusterID: &v1alpha1.Cluster{}} {
		if err := c.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, obj); err != nil {
			if at, _ := removedSince(ctx, c, m.Namespace, m.ClusterID); at != "" {
				return fmt.Errorf("cluster %s was removed from clusterset %s at %s: get a new invitation (seamark broker invite %s)",
					m.ClusterID, m.ClusterSet, at, m.ClusterID)
			}
			return explainBroker(m, err)
		}
	}
	if err := c.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterID}, lease); err != nil {
		return explainBroker(m, err)
	}
	if heldByOther(lease, holder, time.Now()) {
		return fmt.Errorf("the id %s is used by another cluster, which renewed its lease a moment ago: get an invitation for another id "+
			"(seamark broker invite ID); if that cluster is gone for good, run seamark cluster remove %s and invite this one anew",
			m.ClusterID, m.ClusterID)
	}
	if objects.ClearRemoved(lease) {
		if err := c.Update(ctx, lease); err != nil {
			return fmt.Errorf("take up lease %s again: %w", m.ClusterID, err)
		}
	}
	return nil
}

// explainBroker puts into words why the broker does not take a member, and what to do.
func explainBroker(m objects.Membership, err error) error {
	what, remedy := brokerProblem(m, err)
	return fmt.Errorf("%s; %s: %w", what, remedy, err)
}

func brokerProblem(m objects.Membership, err error) (what, remedy string) {
	renew := fmt.Sprintf("get a new invitation (seamark broker invite %s --renew)", m.ClusterID)
	renewOrInvite := fmt.Sprintf("get a new invitation (seamark broker invite %s --renew; if the cluster was removed: without --renew)", m.ClusterID)
	switch cause, _ := objects.ErrorCause(err); cause {
	case objects.CauseUnauthorized:
		return fmt.Sprintf("the broker at %s does not accept the credential of cluster %s: it has expired or was revoked",
			m.Server, m.ClusterID), renewOrInvite
	case objects.CauseForbidden:
		return fmt.Sprintf("the broker at %s does not let cluster %s in: its invitation is incomplete", m.Server, m.ClusterID), renew
	case objects.CauseNotFound, objects.CauseNoCRD:
		return fmt.Sprintf("the broker at %s does not know cluster %s of clusterset %s", m.Server, m.ClusterID, m.ClusterSet),
			fmt.Sprintf("get a new invitation (seamark broker invite %s)", m.ClusterID)
	}
	return fmt.Sprintf("the broker at %s cannot be asked from here", m.Server),
		"check that its address can be reached (seamark broker invite --server sets another)"
}

// heldByOther reports whether another cluster holds the lease and renews it. The renewTime is by
// that cluster's clock, so the API server's record of the last write counts too.
func heldByOther(lease *coordinationv1.Lease, holder string, now time.Time) bool {
	other := ptr.Deref(lease.Spec.HolderIdentity, "")
	if other == "" || other == holder {
		return false
	}
	var last time.Time
	if lease.Spec.RenewTime != nil {
		last = lease.Spec.RenewTime.Time
	}
	for _, field := range lease.ManagedFields {
		if field.Time != nil && field.Time.After(last) {
			last = field.Time.Time
		}
	}
	return now.Sub(last) <= objects.LeaseDurationOf(lease)
}

// install writes the objects that make the cluster a member. The policies come last: for up to 30
// seconds the API server may not know the kind of their parameter and deny what they match.
func install(ctx context.Context, c client.Client, invitation, m objects.Membership) ([]Step, error) {
	steps, err := installKinds(ctx, c, crds.Member)
	if err != nil {
		return steps, err
	}
	step, err := ensureAgentNamespace(ctx, c)
	if err != nil {
		return steps, err
	}
	steps = append(steps, step)
	if step, err = writeInvitation(ctx, c, invitation); err != nil {
		return steps, err
	}
	steps = append(steps, step)
	if step, err = writeMembership(ctx, c, m); err != nil {
		return steps, err
	}
	steps = append(steps, step)
	for _, obj := range objects.Identity(m) {
		want := objects.IdentityValue(obj)
		var step Step
		err := retryUntilPoliciesReady(ctx, func(ctx context.Context) (err error) {
			step, err = ensure(ctx, c, obj, func(have client.Object) bool { return setIdentity(have, want) })
			return err
		})
		if err != nil {
			return steps, err
		}
		steps = append(steps, step)
	}
	rules, err := installPolicies(ctx, c, crds.Member, policies.Member)
	return append(steps, rules...), err
}

// writeInvitation writes the Secret that the chart writes from its value.
func writeInvitation(ctx context.Context, c client.Client, invitation objects.Membership) (Step, error) {
	want := invitation.Invitation()
	step := Step{Object: describe(c, want), Action: Updated}
	have, err := readSecret(ctx, c, want.Name)
	switch {
	case err != nil:
		return step, err
	case have == nil:
		step.Action = Created
	case equality.Semantic.DeepEqual(have.Data, want.Data):
		step.Action = Unchanged
		return step, nil
	}
	if err := adopt.Apply(ctx, c, want); err != nil {
		return step, fmt.Errorf("%s: %w", step.Object, err)
	}
	return step, nil
}

// writeMembership writes what the agent takes up of the invitation. An agent that runs may do so at
// the same time.
func writeMembership(ctx context.Context, c client.Client, m objects.Membership) (step Step, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret := m.Secret()
		data := secret.Data
		objects.AllowHelm(secret) // the chart creates it too, without data
		step, err = ensure(ctx, c, secret, func(have *corev1.Secret) bool {
			changed := objects.ClearRemoved(have) || !equality.Semantic.DeepEqual(have.Data, data)
			have.Data = data
			return changed
		})
		return err
	})
	return step, err
}

// ensureAgentNamespace creates the agent's namespace. If an earlier Leave is still deleting it,
// ensureAgentNamespace waits until it is gone.
func ensureAgentNamespace(ctx context.Context, c client.Client) (Step, error) {
	var step Step
	err := wait.PollUntilContextTimeout(ctx, deletionPoll, deletionTimeout, true, func(ctx context.Context) (bool, error) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: objects.AgentNamespace, Labels: managedLabels("")}}
		var err error
		step, err = ensure(ctx, c, namespace, nil)
		return namespace.DeletionTimestamp == nil, err
	})
	if wait.Interrupted(err) {
		return step, fmt.Errorf("namespace %s is being deleted: wait until it is gone and try again: %w", objects.AgentNamespace, err)
	}
	return step, err
}

// setIdentity sets the value of an identity object and reports whether it changed.
func setIdentity(obj client.Object, value string) bool {
	if objects.IdentityValue(obj) == value {
		return false
	}
	switch typed := obj.(type) {
	case *aboutv1beta1.ClusterProperty:
		typed.Spec.Value = value
	case *claimsv1.ClusterClaim:
		typed.Spec.Value = value
	}
	return true
}
