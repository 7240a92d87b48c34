package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

type memberList struct {
	Clusters []brokeradmin.Member `json:"clusters"`
}

// newBroker deploys a broker in a namespace of its own.
func newBroker(env *environment, namespace, more string) {
	env.t.Helper()
	env.mustRun("broker deploy --context broker -n %s %s", namespace, more)
	env.t.Cleanup(func() { env.removeBroker(namespace) })
}

// member returns a member of the clusterset of a broker namespace.
func (env *environment) member(namespace, id string) brokeradmin.Member {
	env.t.Helper()
	members := decode[memberList](env, "cluster list --context broker -n %s", namespace).Clusters
	i := slices.IndexFunc(members, func(m brokeradmin.Member) bool { return m.ClusterID == id })
	if i < 0 {
		env.t.Fatalf("there is no member %s: %+v", id, members)
	}
	return members[i]
}

func TestInvitationHoldsOnlyThatMembersCredential(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-file", "")
	east := env.invite("b-file", "east", "")
	west := env.invite("b-file", "west", "")

	info, err := os.Stat(env.path("east.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	text, err := os.ReadFile(env.path("east.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		switch name {
		case "apiVersion", "kind", "clusterID", "clusterSet", "namespace", "server", "caData", "token":
		default:
			t.Errorf("the invitation holds %q", name)
		}
	}
	admin := env.planes["broker"].Config()
	for what, secret := range map[string][]byte{
		"the admin's key": admin.KeyData, "the admin's certificate": admin.CertData, "the token of west": []byte(west.Token),
	} {
		if bytes.Contains(text, secret) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString(secret))) {
			t.Errorf("the invitation holds %s", what)
		}
	}
	if who := userOf(t, east); who != "system:serviceaccount:b-file:member.east" {
		t.Errorf("the credential is that of %s", who)
	}

	// With --file - the invitation is printed to standard output, and the messages to standard error.
	o := env.mustRun("broker invite east --context broker -n b-file --renew --file -")
	if m, err := brokeradmin.DecodeInvitation([]byte(o.Stdout)); err != nil || m.ClusterID != "east" {
		t.Errorf("standard output is not the invitation: %v\n%s", err, o.Stdout)
	}
	if strings.Contains(o.Stderr, "token:") || !strings.Contains(o.Stderr, "has a new credential") {
		t.Errorf("standard error: %s", o.Stderr)
	}
	if o := env.mustRun("broker invite east --context broker -n b-file --renew --file - -o json"); !strings.HasPrefix(o.Stdout, "{") {
		t.Errorf("not JSON: %s", o.Stdout)
	}
	// The JSON output has no credential.
	o = env.mustRun("broker invite east --context broker -n b-file --renew --force --file %s -o json", env.path("east.yaml"))
	if strings.Contains(o.Stdout, env.invitation("east").Token) {
		t.Error("the token is printed")
	}
	// An existing file is not overwritten, and nothing is registered then.
	env.mustRefuse(fmt.Sprintf("broker invite north --context broker -n b-file --file %s", env.path("east.yaml")), "--force")
	if got := decode[memberList](env, "cluster list --context broker -n b-file"); len(got.Clusters) != 2 {
		t.Errorf("a refused invitation registered a cluster: %+v", got)
	}
}

func userOf(t testing.TB, m objects.Membership) string {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	if err := clientOf(t, m).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

func TestRenewRestoresAndRevokes(t *testing.T) {
	env := newEnvironment(t)
	ctx, broker := t.Context(), env.clients["broker"]
	newBroker(env, "b-renew", "")
	first := env.invite("b-renew", "east", "--clusterset-ip-cidr 243.5.0.0/16")
	second := env.invite("b-renew", "east", "--renew --force --allow-namespaces shop")
	for _, m := range []objects.Membership{first, second} {
		if err := tryToken(t, m); err != nil {
			t.Errorf("a renewal must not invalidate the token of the running agent: %v", err)
		}
	}
	members := decode[memberList](env, "cluster list --context broker -n b-renew").Clusters
	if len(members) != 1 || members[0].Blocks[0] != "243.5.0.0/16" || fmt.Sprint(members[0].AllowedNamespaces) != "[shop]" {
		t.Errorf("blocks must stay and namespaces change: %+v", members)
	}
	env.invite("b-renew", "east", "--renew --force")
	if got := decode[memberList](env, "cluster list --context broker -n b-renew").Clusters[0].AllowedNamespaces; fmt.Sprint(got) != "[shop]" {
		t.Errorf("a renewal without namespaces changed them to %v", got)
	}

	third := env.invite("b-renew", "east", "--renew --revoke --force")
	harness.Eventually(t, "the revoked token is refused", func() error {
		if err := tryToken(t, second); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if err := tryToken(t, third); err != nil {
		t.Errorf("the new token does not work: %v", err)
	}

	// An interrupted invitation is completed.
	if err := broker.DeleteAllOf(ctx, &corev1.ServiceAccount{}, client.InNamespace("b-renew")); err != nil {
		t.Fatal(err)
	}
	fourth := env.invite("b-renew", "east", "--renew --force")
	if err := tryToken(t, fourth); err != nil {
		t.Errorf("a completed invitation does not work: %v", err)
	}
	env.mustRefuse("broker invite x --context broker -n b-renew --token-lifetime 1m --file "+env.path("x"), "at least 10m")
}

// tryToken reads an object that every member may read with a member's credential.
func tryToken(t testing.TB, m objects.Membership) error {
	t.Helper()
	return clientOf(t, m).Get(t.Context(), types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterID}, &v1alpha1.Cluster{})
}

func TestTokenLifetime(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-lifetime", "")
	type invited struct {
		Expires time.Time `json:"expires"`
	}
	for flag, want := range map[string]time.Duration{"": 72 * time.Hour, "--token-lifetime 1h": time.Hour} {
		id := fmt.Sprintf("c%d", int(want.Hours()))
		got := decode[invited](env, "broker invite %s --context broker -n b-lifetime --file %s %s", id, env.path(id), flag)
		if left := time.Until(got.Expires); left > want+time.Minute || left < want-5*time.Minute {
			t.Errorf("%q: expires in %s, want %s", flag, left, want)
		}
	}
}

// Parallel invitations must not assign the same block, id or chosen block twice.
func TestParallelInvites(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-parallel", "")
	const n = 8
	runAll := func(line func(i int) string) []transcript.Result {
		results := make([]transcript.Result, n)
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() { results[i] = env.run(line(i)) })
		}
		group.Wait()
		return results
	}
	succeeded := func(results []transcript.Result) (count int) {
		for _, o := range results {
			if o.Code == 0 {
				count++
			}
		}
		return count
	}
	different := runAll(func(i int) string {
		return fmt.Sprintf("broker invite c%d --context broker -n b-parallel --file %s", i, env.path(fmt.Sprintf("c%d.yaml", i)))
	})
	if succeeded(different) != n {
		t.Fatalf("all should succeed: %+v", different)
	}
	for i := range n {
		if err := tryToken(t, env.invitation(fmt.Sprintf("c%d", i))); err != nil {
			t.Errorf("c%d: %v", i, err)
		}
	}
	same := runAll(func(i int) string {
		return fmt.Sprintf("broker invite same --context broker -n b-parallel --file %s", env.path(fmt.Sprintf("same%d.yaml", i)))
	})
	if succeeded(same) != 1 {
		t.Errorf("one id was assigned %d times: %+v", succeeded(same), same)
	}
	chosen := runAll(func(i int) string {
		return fmt.Sprintf("broker invite d%d --context broker -n b-parallel --clusterset-ip-cidr 243.77.0.0/16 --file %s",
			i, env.path(fmt.Sprintf("d%d.yaml", i)))
	})
	if succeeded(chosen) != 1 {
		t.Errorf("one block was assigned %d times: %+v", succeeded(chosen), chosen)
	}
	members := decode[memberList](env, "cluster list --context broker -n b-parallel").Clusters
	if len(members) != n+2 {
		t.Errorf("%d members, want %d: refused invitations must leave nothing behind", len(members), n+2)
	}
	var seen []netip.Prefix
	for _, m := range members {
		for _, block := range m.Blocks {
			p := netip.MustParsePrefix(string(block))
			for _, other := range seen {
				if p.Overlaps(other) {
					t.Errorf("%s overlaps %s: %+v", p, other, members)
				}
			}
			seen = append(seen, p)
		}
	}
}

// A block is assigned again only after its member was removed.
func TestBlocksAreReused(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-reuse", "--clusterset-ip-cidr-range 10.250.0.0/24 --clusterset reuse")
	for i := range 16 {
		env.invite("b-reuse", fmt.Sprintf("c%d", i), "")
	}
	env.mustRefuse("broker invite more --context broker -n b-reuse --file "+env.path("more.yaml"),
		"no free /28 block is left", "seamark cluster remove", "--clusterset-ip-cidr-range")
	env.mustRun("cluster remove c7 --context broker -n b-reuse")
	env.invite("b-reuse", "more", "")
	if m := env.member("b-reuse", "more"); len(m.Blocks) != 1 || m.Blocks[0] != "10.250.0.112/28" {
		t.Errorf("got %v, want the block that became free", m.Blocks)
	}
}

// A full clusterset gets another range, and members get further blocks. What there is stays.
func TestRangesAndBlocksAreAdded(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-more", "--clusterset-ip-cidr-range 10.251.0.0/28 --clusterset more")
	for i := range 4 {
		env.invite("b-more", fmt.Sprintf("c%d", i), "")
	}
	env.mustRefuse("cluster add-block c0 --context broker -n b-more", "no free /30 block is left", "--clusterset-ip-cidr-range")
	env.mustRefuse("broker deploy --context broker -n b-more --clusterset-ip-cidr-range 10.252.0.0/28", "a range cannot be changed or removed")
	if o := env.run("broker deploy --context broker -n b-more --clusterset-ip-cidr-range 10.251.0.0/28,10.251.0.0/24"); o.Code != 2 ||
		!strings.Contains(o.Stderr, "10.251.0.0/24 overlaps 10.251.0.0/28") {
		t.Errorf("%+v", o)
	}
	env.mustRun("broker deploy --context broker -n b-more --clusterset-ip-cidr-range 10.251.0.0/28,10.252.0.0/28")
	env.invite("b-more", "c4", "")
	if m := env.member("b-more", "c4"); fmt.Sprint(m.Blocks) != "[10.252.0.0/30]" {
		t.Errorf("c4 has %v", m.Blocks)
	}
	env.mustRefuse("cluster add-block none --context broker -n b-more", "there is no cluster none", "seamark cluster list")
	env.mustRefuse("cluster add-block c0 --context broker -n b-more --clusterset-ip-cidr 10.252.0.0/30", "overlaps 10.252.0.0/30 of cluster c4")
	env.mustRefuse("cluster add-block c0 --context broker -n b-more --clusterset-ip-cidr 10.253.0.0/30", "does not lie in the clusterset's range")
	got := decode[brokeradmin.AddBlockResult](env, "cluster add-block c0 --context broker -n b-more")
	if fmt.Sprint(got.Added, got.Blocks) != "[10.252.0.4/30] [10.251.0.0/30 10.252.0.4/30]" {
		t.Errorf("%+v", got)
	}
	out := env.mustRun("cluster add-block c0 --context broker -n b-more --clusterset-ip-cidr 10.252.0.12/30")
	if !strings.Contains(out.Stdout, "10.252.0.12/30") || !strings.Contains(out.Stdout, "10.251.0.0/30") {
		t.Error(out.Stdout)
	}
	env.mustRefuse("cluster add-block c1 --context broker -n b-more --clusterset-ip-cidr 10.252.0.8/29", "overlaps")
}

// Members that get a block at the same time get different ones.
func TestParallelBlocks(t *testing.T) {
	env := newEnvironment(t)
	newBroker(env, "b-blocks", "")
	const n = 6
	for i := range n {
		env.invite("b-blocks", fmt.Sprintf("c%d", i), "")
	}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if o := env.run(fmt.Sprintf("cluster add-block c%d --context broker -n b-blocks", i)); o.Code != 0 {
				t.Errorf("c%d: exit %d: %s", i, o.Code, o.Stderr)
			}
		})
	}
	group.Wait()
	owners, added := map[v1alpha1.CIDR]string{}, 0
	for _, m := range decode[memberList](env, "cluster list --context broker -n b-blocks").Clusters {
		added += len(m.Blocks) - 2
		for _, block := range m.Blocks {
			if other, taken := owners[block]; taken {
				t.Errorf("%s has been given to %s and %s", block, other, m.ClusterID)
			}
			owners[block] = m.ClusterID
		}
	}
	if added != 2*n {
		t.Errorf("%d blocks were added, want two for each of %d members", added, n)
	}
}

func TestCredentialIsConfinedAndRevokedAtOnce(t *testing.T) {
	env := newEnvironment(t)
	ctx := t.Context()
	newBroker(env, "b-confined", "")
	env.createNamespace("elsewhere", "broker")
	env.create("broker", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: "secret"}})
	east, west := env.invite("b-confined", "east", ""), env.invite("b-confined", "west", "")
	c := clientOf(t, east)
	account := func(id string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: objects.MemberAccount(id)}}
	}
	for name, attempt := range map[string]func() error{
		"list secrets of the broker": func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace("b-confined")) },
		"list secrets elsewhere":     func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace("elsewhere")) },
		"list all secrets":           func() error { return c.List(ctx, &corev1.SecretList{}) },
		"get a secret": func() error {
			return c.Get(ctx, types.NamespacedName{Namespace: "b-confined", Name: "secret"}, &corev1.Secret{})
		},
		"list clusters elsewhere": func() error { return c.List(ctx, &v1alpha1.ClusterList{}, client.InNamespace("elsewhere")) },
		"register a cluster": func() error {
			return c.Create(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: "evil"}})
		},
		"get the token of another member": func() error {
			return c.SubResource("token").Create(ctx, account("west"), &authenticationv1.TokenRequest{})
		},
		"list accounts":                 func() error { return c.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace("b-confined")) },
		"list namespaces of the broker": func() error { return c.List(ctx, &corev1.NamespaceList{}) },
	} {
		if err := attempt(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}
	// A member may renew its own token.
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, account("east"), request); err != nil || request.Status.Token == "" {
		t.Fatalf("a member must be able to renew its token: %v", err)
	}
	renewed := east
	renewed.Token = request.Status.Token
	if err := tryToken(t, renewed); err != nil {
		t.Error(err)
	}

	env.mustRun("cluster remove east --context broker -n b-confined")
	for _, m := range []objects.Membership{east, renewed} {
		harness.Eventually(t, "a removed member has no access", func() error {
			if err := tryToken(t, m); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	if err := tryToken(t, west); err != nil {
		t.Errorf("revoking one member affected another: %v", err)
	}
	// A new member with the same id does not make the old token valid again.
	env.invite("b-confined", "east", "--force")
	harness.Eventually(t, "an old token stays revoked", func() error {
		if err := tryToken(t, east); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
