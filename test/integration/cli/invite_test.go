package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
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
)

type listing struct {
	Clusters []brokeradmin.Member `json:"clusters"`
}

// newBroker deploys a broker in a namespace of its own.
func newBroker(b *bed, namespace, more string) {
	b.t.Helper()
	b.must("broker deploy --context hub -n %s %s", namespace, more)
	b.t.Cleanup(func() { b.dismantle(namespace) })
}

func TestInvitationHoldsOnlyThatMembersCredential(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-file", "")
	east := b.invite("b-file", "east", "")
	west := b.invite("b-file", "west", "")

	info, err := os.Stat(b.path("east.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	text, err := os.ReadFile(b.path("east.yaml"))
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
	admin := b.planes["hub"].Config()
	for what, secret := range map[string][]byte{"the admin's key": admin.KeyData, "the admin's certificate": admin.CertData, "another's token": []byte(west.Token)} {
		if bytes.Contains(text, secret) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString(secret))) {
			t.Errorf("the invitation holds %s", what)
		}
	}
	if who := whoami(t, east); who != "system:serviceaccount:b-file:member.east" {
		t.Errorf("the credential is that of %s", who)
	}

	// To standard output: the file alone there, what is told beside it.
	o := b.must("broker invite east --context hub -n b-file --renew --file -")
	if m, err := brokeradmin.DecodeInvitation([]byte(o.out)); err != nil || m.ClusterID != "east" {
		t.Errorf("standard output is not the invitation: %v\n%s", err, o.out)
	}
	if strings.Contains(o.err, "token:") || !strings.Contains(o.err, "has a new credential") {
		t.Errorf("standard error: %s", o.err)
	}
	if o := b.must("broker invite east --context hub -n b-file --renew --file - -o json"); !strings.HasPrefix(o.out, "{") {
		t.Errorf("not JSON: %s", o.out)
	}
	// What -o json tells holds no credential.
	told := b.must("broker invite east --context hub -n b-file --renew --force --file %s -o json", b.path("east.yaml"))
	if strings.Contains(told.out, b.invitation("east").Token) {
		t.Error("the token is printed")
	}
	// A file that exists is refused before anything is registered.
	b.refused(fmt.Sprintf("broker invite north --context hub -n b-file --file %s", b.path("east.yaml")), "--force")
	if got := decode[listing](b, "cluster list --context hub -n b-file"); len(got.Clusters) != 2 {
		t.Errorf("a refused invitation registered a cluster: %+v", got)
	}
}

func whoami(t testing.TB, m objects.Membership) string {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	if err := as(t, m).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

func TestRenewRestoresAndRevokes(t *testing.T) {
	b := newBed(t)
	ctx, hub := t.Context(), b.clients["hub"]
	newBroker(b, "b-renew", "")
	first := b.invite("b-renew", "east", "--clusterset-ip-cidr 243.5.0.0/16")
	second := b.invite("b-renew", "east", "--renew --force --allow-namespaces shop")
	for _, m := range []objects.Membership{first, second} {
		if err := tokenWorks(t, m); err != nil {
			t.Errorf("a renewal must not cut off the agent that runs: %v", err)
		}
	}
	members := decode[listing](b, "cluster list --context hub -n b-renew").Clusters
	if len(members) != 1 || members[0].Blocks[0] != "243.5.0.0/16" || fmt.Sprint(members[0].AllowedNamespaces) != "[shop]" {
		t.Errorf("blocks must stay and namespaces change: %+v", members)
	}
	b.invite("b-renew", "east", "--renew --force")
	if got := decode[listing](b, "cluster list --context hub -n b-renew").Clusters[0].AllowedNamespaces; fmt.Sprint(got) != "[shop]" {
		t.Errorf("a renewal that says nothing of namespaces changed them to %v", got)
	}

	third := b.invite("b-renew", "east", "--renew --revoke --force")
	harness.Eventually(t, "the revoked token is refused", func() error {
		if err := tokenWorks(t, second); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if err := tokenWorks(t, third); err != nil {
		t.Errorf("the new one does not work: %v", err)
	}

	// What an interrupted invitation left out is completed.
	for _, kind := range []client.Object{&corev1.ServiceAccount{}} {
		if err := hub.DeleteAllOf(ctx, kind, client.InNamespace("b-renew")); err != nil {
			t.Fatal(err)
		}
	}
	fourth := b.invite("b-renew", "east", "--renew --force")
	if err := tokenWorks(t, fourth); err != nil {
		t.Errorf("a completed invitation does not work: %v", err)
	}
	if o := b.run("broker invite x --context hub -n b-renew --token-lifetime 1m --file " + b.path("x")); o.code != 1 || !strings.Contains(o.err, "at least 10m") {
		t.Errorf("%+v", o)
	}
}

// tokenWorks reads with a member's credential what every member may read.
func tokenWorks(t testing.TB, m objects.Membership) error {
	t.Helper()
	return as(t, m).Get(t.Context(), types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterID}, &v1alpha1.Cluster{})
}

func TestTokenLifetime(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-lifetime", "")
	type told struct {
		Expires time.Time `json:"expires"`
	}
	for flag, want := range map[string]time.Duration{"": 72 * time.Hour, "--token-lifetime 1h": time.Hour} {
		id := fmt.Sprintf("c%d", int(want.Hours()))
		got := decode[told](b, "broker invite %s --context hub -n b-lifetime --file %s %s", id, b.path(id), flag)
		if left := time.Until(got.Expires); left > want+time.Minute || left < want-5*time.Minute {
			t.Errorf("%q: expires in %s, want %s", flag, left, want)
		}
	}
}

// Two admins at once must not hand out the same block, id or chosen block.
func TestParallelInvites(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-parallel", "")
	const n = 8
	all := func(line func(i int) string) []outcome {
		outcomes := make([]outcome, n)
		var admins sync.WaitGroup
		for i := range n {
			admins.Go(func() { outcomes[i] = b.run(line(i)) })
		}
		admins.Wait()
		return outcomes
	}
	ok := func(outcomes []outcome) (count int) {
		for _, o := range outcomes {
			if o.code == 0 {
				count++
			}
		}
		return count
	}
	different := all(func(i int) string {
		return fmt.Sprintf("broker invite c%d --context hub -n b-parallel --file %s", i, b.path(fmt.Sprintf("c%d.yaml", i)))
	})
	if ok(different) != n {
		t.Fatalf("all should succeed: %+v", different)
	}
	for i := range n {
		if err := tokenWorks(t, b.invitation(fmt.Sprintf("c%d", i))); err != nil {
			t.Errorf("c%d: %v", i, err)
		}
	}
	same := all(func(i int) string {
		return fmt.Sprintf("broker invite same --context hub -n b-parallel --file %s", b.path(fmt.Sprintf("same%d.yaml", i)))
	})
	if ok(same) != 1 {
		t.Errorf("one id was given out %d times: %+v", ok(same), same)
	}
	chosen := all(func(i int) string {
		return fmt.Sprintf("broker invite d%d --context hub -n b-parallel --clusterset-ip-cidr 243.77.0.0/16 --file %s", i, b.path(fmt.Sprintf("d%d.yaml", i)))
	})
	if ok(chosen) != 1 {
		t.Errorf("one block was given out %d times: %+v", ok(chosen), chosen)
	}
	members := decode[listing](b, "cluster list --context hub -n b-parallel").Clusters
	if len(members) != n+2 {
		t.Errorf("%d members, want %d: what lost must be gone", len(members), n+2)
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

// A block is handed out again only after its member is gone.
func TestBlocksAreReused(t *testing.T) {
	b := newBed(t)
	newBroker(b, "b-reuse", "--clusterset-ip-cidr-range 10.250.0.0/24 --clusterset reuse")
	for i := range 16 {
		b.invite("b-reuse", fmt.Sprintf("c%d", i), "")
	}
	b.refused("broker invite more --context hub -n b-reuse --file "+b.path("more.yaml"), "no free /28 block left", "seamark cluster remove")
	b.must("cluster remove c7 --context hub -n b-reuse")
	b.invite("b-reuse", "more", "")
	for _, m := range decode[listing](b, "cluster list --context hub -n b-reuse").Clusters {
		if m.ClusterID == "more" && (len(m.Blocks) != 1 || m.Blocks[0] != "10.250.0.112/28") {
			t.Errorf("got %v, want the block that became free", m.Blocks)
		}
	}
}

func TestCredentialIsConfinedAndRevokedAtOnce(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	newBroker(b, "b-confined", "")
	b.namespace("elsewhere", "hub")
	b.create("hub", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: "prey"}})
	east, west := b.invite("b-confined", "east", ""), b.invite("b-confined", "west", "")
	c := as(t, east)
	account := func(id string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: objects.MemberAccount(id)}}
	}
	for name, attempt := range map[string]func() error{
		"list secrets of the broker": func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace("b-confined")) },
		"list secrets elsewhere":     func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace("elsewhere")) },
		"list all secrets":           func() error { return c.List(ctx, &corev1.SecretList{}) },
		"get a secret": func() error {
			return c.Get(ctx, types.NamespacedName{Namespace: "b-confined", Name: "prey"}, &corev1.Secret{})
		},
		"list clusters elsewhere": func() error { return c.List(ctx, &v1alpha1.ClusterList{}, client.InNamespace("elsewhere")) },
		"register a cluster": func() error {
			return c.Create(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "b-confined", Name: "evil"}})
		},
		"get another's token": func() error {
			return c.SubResource("token").Create(ctx, account("west"), &authenticationv1.TokenRequest{})
		},
		"list accounts":                 func() error { return c.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace("b-confined")) },
		"list namespaces of the broker": func() error { return c.List(ctx, &corev1.NamespaceList{}) },
	} {
		if err := attempt(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}
	// Its own token it may renew.
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, account("east"), request); err != nil || request.Status.Token == "" {
		t.Fatalf("a member must be able to renew its token: %v", err)
	}
	renewed := east
	renewed.Token = request.Status.Token
	if err := tokenWorks(t, renewed); err != nil {
		t.Error(err)
	}

	b.must("cluster remove east --context hub -n b-confined")
	for _, m := range []objects.Membership{east, renewed} {
		harness.Eventually(t, "a removed member is locked out", func() error {
			if err := tokenWorks(t, m); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	if err := tokenWorks(t, west); err != nil {
		t.Errorf("revoking one member concerned another: %v", err)
	}
	// The same id again is another member: the old token stays dead.
	b.invite("b-confined", "east", "--force")
	harness.Eventually(t, "an old token stays revoked", func() error {
		if err := tokenWorks(t, east); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
