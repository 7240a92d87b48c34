package brokeradmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// DefaultTokenLifetime is how long an invitation can be used, and how long a member can be away
	// from the broker before its credential expires.
	DefaultTokenLifetime = 72 * time.Hour
	// minTokenLifetime is the shortest lifetime that an API server grants.
	minTokenLifetime = 10 * time.Minute
	// blockRounds is how often an invitation retries when others take its blocks. In each round at
	// least one of the competing invitations succeeds.
	blockRounds = 64
	// annotationInvitedFor is the kube-system uid of the cluster that `join --broker-context` created
	// the invitation for, so that an interrupted command can be run again.
	annotationInvitedFor = "seamark.dev/invited-for"
	// annotationTokenAudiences are, on the broker's namespace, the audiences of its API server. The
	// policy on tokens compares with them: a policy cannot ask the API server.
	annotationTokenAudiences = "seamark.dev/token-audiences"
)

// InviteOptions are the options of an invitation.
type InviteOptions struct {
	// Namespace of the broker; DefaultNamespace when empty.
	Namespace string
	// Server and CAData are the URL and the CA by which the member reaches the broker's API server.
	Server string
	CAData []byte
	// Blocks are the wanted address blocks, at most one per family. Without them the member gets the
	// next free ones.
	Blocks []netip.Prefix
	// AllowedNamespaces are the namespaces whose services the member may exchange. For a new member,
	// nil allows all but system namespaces. For an existing member, nil changes nothing and a list,
	// empty or not, replaces what it had.
	AllowedNamespaces []string
	// EndpointRanges are the only ranges in which the member's endpoints may lie. For an existing
	// member, nil changes nothing and a list, empty or not, replaces what it had.
	EndpointRanges []netip.Prefix
	// TokenLifetime is DefaultTokenLifetime when zero.
	TokenLifetime time.Duration
	// Renew issues a new credential for an existing member and completes what an interrupted
	// invitation left out.
	Renew bool
	// Revoke makes all earlier credentials of the member invalid.
	Revoke bool
	// For is the kube-system uid of the cluster that is going to join, if it is known. If the member
	// was invited for that cluster before, or that cluster holds its lease, Invite continues as with
	// Renew.
	For string
}

// InviteResult is the outcome of an invitation.
type InviteResult struct {
	Membership objects.Membership
	Blocks     []v1alpha1.CIDR
	Namespaces []string
	// Renewed reports that the member existed before, Revoked that its earlier credentials ended.
	Renewed, Revoked bool
	// Expires is when the credential ends unless the agent renews it.
	Expires time.Time
}

// ErrInUse is wrapped by the error of Invite for an id that another member has.
var ErrInUse = errors.New("the id is in use")

// Invite registers a member on the broker and returns its credential. It refuses ids that are
// invalid or in use and blocks that are not free. The member exists as soon as its Cluster object
// does: if a later step fails, Invite with Renew completes it.
func Invite(ctx context.Context, c client.Client, id string, o InviteOptions) (InviteResult, error) {
	o.Namespace = cmp.Or(o.Namespace, objects.DefaultNamespace)
	o.TokenLifetime = cmp.Or(o.TokenLifetime, DefaultTokenLifetime)
	if err := checkInvite(id, o); err != nil {
		return InviteResult{}, err
	}
	set, err := findClusterSet(ctx, c, o.Namespace)
	if err != nil {
		return InviteResult{}, err
	}
	cluster, renewed, err := findOrRegister(ctx, c, set, id, o)
	if err != nil {
		return InviteResult{}, err
	}
	// Tokens from before a removal must not become valid again.
	o.Revoke = o.Revoke || !renewed
	membership := objects.Membership{ClusterID: id, ClusterSet: set.Name, Namespace: o.Namespace, Server: o.Server, CAData: o.CAData}
	expires, err := issueCredential(ctx, c, &membership, o)
	if err != nil {
		return InviteResult{}, fmt.Errorf(
			"cluster %s is registered, but its credential is not complete: run seamark broker invite %s --renew: %w", id, id, err)
	}
	return InviteResult{
		Membership: membership, Renewed: renewed, Revoked: renewed && o.Revoke, Expires: expires,
		Blocks: cluster.Spec.ClusterSetIPBlocks, Namespaces: cluster.Spec.AllowedNamespaces,
	}, nil
}

func checkInvite(id string, o InviteOptions) error {
	if err := CheckClusterID(id); err != nil {
		return err
	}
	if err := CheckNamespaces(o.AllowedNamespaces); err != nil {
		return err
	}
	switch {
	case o.Server == "":
		return errors.New("the address of the broker's API server is not known: say it with --server")
	case o.Renew && len(o.Blocks) > 0:
		return errors.New("the blocks of an existing member stay as they are: leave out --clusterset-ip-cidr when renewing")
	case o.TokenLifetime < minTokenLifetime:
		return fmt.Errorf("a token cannot be valid for %s only: API servers grant at least %s", o.TokenLifetime, minTokenLifetime)
	case o.Revoke && !o.Renew:
		return errors.New("there is nothing to revoke in a new invitation: use --revoke with --renew")
	}
	return nil
}

// findOrRegister returns the Cluster of the member: a new one, or the existing one with Renew.
func findOrRegister(
	ctx context.Context, c client.Client, set *v1alpha1.ClusterSet, id string, o InviteOptions,
) (cluster *v1alpha1.Cluster, renewed bool, err error) {
	cluster = &v1alpha1.Cluster{}
	err = c.Get(ctx, types.NamespacedName{Namespace: set.Namespace, Name: id}, cluster)
	switch {
	case apierrors.IsNotFound(err) && o.Renew:
		return nil, false, noneToRenew(ctx, c, set, id)
	case apierrors.IsNotFound(err):
		cluster, err = register(ctx, c, set, id, o)
		return cluster, false, err
	case err != nil:
		return nil, false, fmt.Errorf("look for cluster %s: %w", id, err)
	}
	if !o.Renew {
		own, err := belongsTo(ctx, c, cluster, o.For)
		if err != nil {
			return nil, false, err
		}
		if !own {
			return nil, false, inUse(id, set.Name)
		}
		if len(o.Blocks) > 0 && !equality.Semantic.DeepEqual(cidrs(o.Blocks), cluster.Spec.ClusterSetIPBlocks) {
			return nil, false, fmt.Errorf("cluster %s already has the blocks %s: leave out --clusterset-ip-cidr", id,
				joinCIDRs(cluster.Spec.ClusterSetIPBlocks))
		}
	}
	granted := cluster.Spec.DeepCopy()
	if o.AllowedNamespaces != nil {
		granted.AllowedNamespaces = o.AllowedNamespaces
	}
	if o.EndpointRanges != nil {
		granted.EndpointRanges = cidrs(o.EndpointRanges)
	}
	if !equality.Semantic.DeepEqual(cluster.Spec, *granted) {
		cluster.Spec = *granted
		if err := c.Update(ctx, cluster); err != nil {
			return nil, false, fmt.Errorf("change what cluster %s is granted: %w", id, err)
		}
	}
	return cluster, true, nil
}

// noneToRenew returns why a cluster that is no member cannot be renewed.
func noneToRenew(ctx context.Context, c client.Client, set *v1alpha1.ClusterSet, id string) error {
	removed, err := removedSince(ctx, c, set.Namespace, id)
	switch {
	case err != nil:
		return fmt.Errorf("look for lease %s: %w", id, err)
	case removed != "":
		return fmt.Errorf("cluster %s was removed from clusterset %s at %s: leave out --renew to invite it again, then join it with the new "+
			"invitation", id, set.Name, removed)
	}
	return fmt.Errorf("there is no cluster %s in clusterset %s to renew: leave out --renew to invite it", id, set.Name)
}

func inUse(id, clusterSet string) error {
	return fmt.Errorf("%w: clusterset %s already has a cluster %s. Choose another id; or, if that cluster is gone for good, run seamark "+
		"cluster remove %s first; or, if it needs a new credential, say seamark broker invite %s --renew", ErrInUse, clusterSet, id, id, id)
}

// belongsTo reports whether the cluster with the given kube-system uid holds the member's lease or,
// while no cluster holds it, whether the member was invited for that cluster.
func belongsTo(ctx context.Context, c client.Client, cluster *v1alpha1.Cluster, uid string) (bool, error) {
	if uid == "" {
		return false, nil
	}
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), lease); err != nil && !absent(err) {
		return false, fmt.Errorf("read lease %s: %w", cluster.Name, err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		return holder == uid, nil
	}
	return cluster.Annotations[annotationInvitedFor] == uid, nil
}

// register creates the Cluster with blocks that no other member has. Creating it claims the blocks.
// A member that claimed one of them earlier is in the list that is read afterwards; then this
// Cluster is deleted and the next round chooses other blocks.
func register(ctx context.Context, c client.Client, set *v1alpha1.ClusterSet, id string, o InviteOptions) (*v1alpha1.Cluster, error) {
	for range blockRounds {
		clusters := &v1alpha1.ClusterList{}
		if err := c.List(ctx, clusters, client.InNamespace(set.Namespace)); err != nil {
			return nil, fmt.Errorf("list the members: %w", err)
		}
		taken, err := blocksOf(clusters.Items)
		if err != nil {
			return nil, err
		}
		blocks, err := ChooseBlocks(set.Spec.ClusterSetIP, o.Blocks, taken)
		if err != nil {
			return nil, err
		}
		cluster := newCluster(set.Namespace, id, blocks, o)
		err = c.Create(ctx, cluster)
		if apierrors.IsAlreadyExists(err) {
			return nil, inUse(id, set.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("register cluster %s: %w", id, err)
		}
		if err := c.List(ctx, clusters, client.InNamespace(set.Namespace)); err != nil {
			return nil, errors.Join(fmt.Errorf("list the members: %w", err), unregister(ctx, c, cluster))
		}
		if !slices.ContainsFunc(clusters.Items, func(other v1alpha1.Cluster) bool { return mustGiveUpBlocks(cluster, &other) }) {
			if err := forgetManagers(ctx, c, cluster); err != nil {
				return nil, errors.Join(err, unregister(ctx, c, cluster))
			}
			return cluster, nil
		}
		if err := unregister(ctx, c, cluster); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("cluster %s got no address block: other invitations took it %d times; try again", id, blockRounds)
}

func newCluster(namespace, id string, blocks []netip.Prefix, o InviteOptions) *v1alpha1.Cluster {
	cluster := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: managedLabels(id)},
		Spec: v1alpha1.ClusterSpec{
			ClusterSetIPBlocks: cidrs(blocks), AllowedNamespaces: o.AllowedNamespaces, EndpointRanges: cidrs(o.EndpointRanges),
		},
	}
	if o.For != "" {
		cluster.Annotations = map[string]string{annotationInvitedFor: o.For}
	}
	return cluster
}

// mustGiveUpBlocks reports whether created, a new Cluster, must be deleted because it has a block
// in common with other. Of two Clusters, the later one always sees the earlier in the list it reads
// after creating; the earlier may have listed too soon. So the later gives up its blocks, and so
// does one that is not certain to be the earlier. Creation times have a resolution of one second
// and do not decide. The resource version of an object that has not changed since is its place in
// the order of creations. Registering drops the managers of fields, which raises that version.
func mustGiveUpBlocks(created, other *v1alpha1.Cluster) bool {
	if created.UID == other.UID || !overlap(created.Spec.ClusterSetIPBlocks, other.Spec.ClusterSetIPBlocks) {
		return false
	}
	unchanged := other.Generation == 1 && len(other.ManagedFields) > 0 && equality.Semantic.DeepEqual(other.Status, v1alpha1.ClusterStatus{})
	otherIsLater := objects.OlderVersion(created, other) && unchanged && !other.CreationTimestamp.Before(&created.CreationTimestamp)
	return !otherIsLater
}

func overlap(a, b []v1alpha1.CIDR) bool {
	for _, x := range a {
		for _, y := range b {
			px, err1 := netip.ParsePrefix(string(x))
			py, err2 := netip.ParsePrefix(string(y))
			if err1 == nil && err2 == nil && px.Overlaps(py) {
				return true
			}
		}
	}
	return false
}

// unregister deletes exactly the Cluster that was created, not a new one of the same name.
func unregister(ctx context.Context, c client.Client, cluster *v1alpha1.Cluster) error {
	err := c.Delete(ctx, cluster, client.Preconditions{UID: ptr.To(cluster.UID)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete cluster %s (run seamark cluster remove %s): %w", cluster.Name, cluster.Name, err)
	}
	return nil
}

// issueCredential creates the member's account, role, bindings and lease, as far as they are
// missing, and requests a token.
func issueCredential(ctx context.Context, c client.Client, m *objects.Membership, o InviteOptions) (expires time.Time, err error) {
	namespace, id := m.Namespace, m.ClusterID
	// The policy bindings come first, so that the member's grants are enforced as soon as it has a
	// credential.
	if _, err := installGrants(ctx, c, namespace); err != nil { // an earlier version may have deployed the broker
		return expires, err
	}
	if _, err := bindGrants(ctx, c, namespace, id); err != nil {
		return expires, err
	}
	account := memberAccount(namespace, id)
	if o.Revoke {
		if _, err := deleteObject(ctx, c, account); err != nil {
			return expires, err
		}
		account = memberAccount(namespace, id)
	}
	if _, err := ensure(ctx, c, account, nil); err != nil {
		return expires, err
	}
	if err := allowAccount(ctx, c, namespace, id); err != nil {
		return expires, err
	}
	if _, err := ensure(ctx, c, memberLease(namespace, id), func(have *coordinationv1.Lease) bool {
		changed := objects.ClearRemoved(have) || have.Labels[mcsv1beta1.LabelSourceCluster] != id
		metav1.SetMetaDataLabel(&have.ObjectMeta, mcsv1beta1.LabelSourceCluster, id)
		return changed
	}); err != nil {
		return expires, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(o.TokenLifetime.Seconds())),
	}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return expires, fmt.Errorf("request a token for ServiceAccount %s: %w", account.Name, err)
	}
	m.Token = request.Status.Token
	return request.Status.ExpirationTimestamp.Time, recordAudiences(ctx, c, namespace, request.Spec.Audiences)
}

// recordAudiences records the audiences that the API server gave a token by default. An admin who
// may not change the namespace leaves what is recorded.
func recordAudiences(ctx context.Context, c client.Client, name string, audiences []string) error {
	namespace, recorded := &corev1.Namespace{}, strings.Join(audiences, ",")
	err := c.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if err == nil && namespace.Annotations[annotationTokenAudiences] != recorded {
		before := namespace.DeepCopy()
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, annotationTokenAudiences, recorded)
		err = c.Patch(ctx, namespace, client.MergeFrom(before))
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("record the audiences of tokens on namespace %s: %w", name, err)
	}
	return nil
}
