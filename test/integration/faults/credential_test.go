package faults_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// unsignedToken returns a token with these times of issue and expiry, relative to now. No server
// accepts it.
func unsignedToken(issued, expires time.Duration) string {
	now := time.Now()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(issued).Unix(), now.Add(expires).Unix())
	return part(`{"alg":"none"}`) + "." + part(claims) + "." + part("x")
}

// signedToken returns a token for the same account as the given one, with these times of issue and
// expiry, relative to now. The server accepts it: API servers issue none that lives less than ten
// minutes, so it is signed here with the server's key.
func signedToken(t *testing.T, broker *controlplane.ControlPlane, token string, issued, expires time.Duration) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(broker.Kubeconfig()), "pki", "service-account.key"))
	must(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	must(t, err)
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	claims := map[string]any{}
	must(t, json.Unmarshal(payload, &claims))
	now := time.Now()
	claims["iat"], claims["nbf"], claims["exp"] = now.Add(issued).Unix(), now.Add(issued).Unix(), now.Add(expires).Unix()
	payload, err = json.Marshal(claims)
	must(t, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	must(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// storeToken replaces the token of a member's membership, and that of the invitation, which would
// be the newer one.
func storeToken(t *testing.T, m *fleet.Member, token string) { setMembership(t, m, "token", token) }

// setMembership changes a member's membership, and the invitation with it.
func setMembership(t *testing.T, m *fleet.Member, key, value string) {
	t.Helper()
	for _, name := range []string{objects.InvitationSecret, objects.MembershipSecret} {
		fleet.Update(t, m, objects.AgentNamespace, name, &corev1.Secret{}, func(s *corev1.Secret) { s.Data[key] = []byte(value) })
	}
}

// A running member that joins again with a token of a shorter life renews that token in time.
func TestRenewalFollowsTheTokenOfANewInvitation(t *testing.T) {
	f := clusterset(t)
	north := f.Members[2]
	ns := fleet.NewNamespace(t, north)
	serve(t, north, ns, "web", "10.3.0.1")
	north.AwaitExported(t, ns, "web") // its agent leads and waits for its token's renewal
	short := membershipOf(t, north)
	short.Token = signedToken(t, f.Broker, short.Token, 0, time.Minute)
	_, err := brokeradmin.Join(context.Background(), north.Client, short, brokeradmin.JoinOptions{})
	must(t, err)
	harness.Eventually(t, "the short-lived token is renewed", func() error {
		if membershipOf(t, north).Token == short.Token {
			return fmt.Errorf("it is still stored")
		}
		return nil
	})
}

// A member whose clock is hours ahead of the broker's takes every token for an old one. It renews
// its token at the rate of the token's lifetime nevertheless.
func TestRenewalWithAClockThatIsHoursAhead(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 1, func(o *controlplane.Options) {
		o.APIServerArgs = append(o.APIServerArgs, "--service-account-max-token-expiration=1h")
	})
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{})
	must(t, err)
	east := f.Members[0]
	membership := membershipOf(t, east)
	storeToken(t, east, signedToken(t, f.Broker, membership.Token, -30*time.Minute, 30*time.Minute)) // due
	first := membershipOf(t, east)
	renewals := func() (n float64) {
		for _, s := range harness.Metric(t, cps[0], "apiserver_request_total") {
			if s.Labels["resource"] == "serviceaccounts" && s.Labels["subresource"] == "token" {
				n += s.Value
			}
		}
		return n
	}
	before := renewals()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	renewal := &member.Renewal{
		Credential: member.NewCredential(first.Token), Membership: first, Local: east.Client, Broker: asMember(t, first), Log: testr.New(t),
		Now: func() time.Time { return time.Now().Add(5 * time.Hour) },
	}
	go func() { done <- renewal.Start(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	harness.Eventually(t, "the token is renewed", func() error {
		if membershipOf(t, east).Token == first.Token {
			return fmt.Errorf("the old one is still stored")
		}
		return nil
	})
	harness.Consistently(t, "it is renewed only once", 5*time.Second, func() error {
		if n := renewals() - before; n != 1 {
			return fmt.Errorf("%v requests for tokens", n)
		}
		return nil
	})
}

// The broker is away for longer than a member's token is valid. The member keeps everything, also
// when its agent restarts, and a new invitation is all that it takes.
func TestOutageLongerThanATokensLife(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 3)
	f := fleet.Started(t, cps[0], cps[1:], fleet.Options{})
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, f.Members...)
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "solo", "10.2.0.1")
	all := map[string]sources{"web": {"east": {"10.1.0.1"}}, "solo": {"west": {"10.2.0.1"}}}
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
	west.AwaitExported(t, ns, "solo")
	awaitNoWrites(t, f.Broker, east.CP, west.CP)
	unchanged := unchangedCheck(t, ns, west)
	must(t, f.Broker.Stop())
	membership := membershipOf(t, west)
	const life, leeway = 5 * time.Second, time.Minute // API servers accept a token for a minute longer than it is valid
	storeToken(t, west, signedToken(t, f.Broker, membership.Token, -10*time.Minute, life-leeway))
	expiry := time.Now().Add(life + 2*time.Second)
	harness.Eventually(t, "the token expires", func() error {
		if left := time.Until(expiry); left > 0 {
			return fmt.Errorf("in %s", left)
		}
		return nil
	})
	must(t, f.Broker.Restart(t.Context()))
	awaitWritable(t, f) // by east, which finds west silent
	harness.Consistently(t, "west changes nothing with an expired token", observationPeriod, unchanged)
	west.Stop()
	start(t, west)
	harness.Consistently(t, "nor after a restart", observationPeriod, unchanged)
	must(t, east.CheckAddresses(ns, "solo", all["solo"]))
	changeEndpoints(t, east, ns, "web", "10.1.0.2")
	serve(t, west, ns, "more", "10.2.0.2")
	awaitNotReady(t, west, ns, "more", v1alpha1.ServiceExportReasonWaitingForBroker)
	invite(t, f, west, func(o *brokeradmin.InviteOptions) { o.Renew = true })
	all = map[string]sources{"web": {"east": {"10.1.0.2"}}, "solo": {"west": {"10.2.0.1"}}, "more": {"west": {"10.2.0.2"}}}
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
}

// A token is renewed when a fifth to a quarter of its lifetime is over. The new one is stored for
// the next agent and used by the running one.
func TestTokenIsRenewed(t *testing.T) {
	f := clusterset(t)
	north := f.Members[2]
	north.Stop()
	t.Cleanup(func() { start(t, north) })
	membership := membershipOf(t, north)
	good := membership.Token
	store := func(token string) { storeToken(t, north, token) }
	t.Cleanup(func() {
		if t.Failed() {
			store(good)
		}
	})
	renew := func(token string) (credential *member.Credential, stop func()) {
		store(token)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		credential = member.NewCredential(token)
		renewal := &member.Renewal{
			Credential: credential, Membership: membership, Local: north.Client,
			Broker: asMember(t, membership), Log: testr.New(t),
		}
		go func() { done <- renewal.Start(ctx) }()
		return credential, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	young := unsignedToken(-11*time.Hour, 61*time.Hour) // 15 % of 72 hours
	_, stop := renew(young)
	harness.Consistently(t, "a young token is not renewed", 2*time.Second, func() error {
		if now := membershipOf(t, north).Token; now != young {
			return fmt.Errorf("it was replaced by %.40s…", now)
		}
		return nil
	})
	stop()
	old := unsignedToken(-19*time.Hour, 53*time.Hour) // 26 %
	credential, stop := renew(old)
	defer stop()
	harness.Eventually(t, "an older token is renewed and stored", func() error {
		if membershipOf(t, north).Token == old {
			return fmt.Errorf("the old token is still stored")
		}
		return nil
	})
	renewed := membershipOf(t, north)
	if renewed.Token == good || renewed.ClusterID != membership.ClusterID || renewed.Server != membership.Server ||
		renewed.DataPlane != membership.DataPlane {
		t.Errorf("stored %+v", renewed)
	}
	must(t, asMember(t, renewed).List(context.Background(), &v1alpha1.ClusterList{}, client.InNamespace(objects.DefaultNamespace)))
	// The agent's own client used the old token, which no server accepts.
	harness.Eventually(t, "the agent uses the new token", func() error {
		c, err := brokeradmin.NewClient(credential.Config(membership))
		if err != nil {
			return err
		}
		return c.List(context.Background(), &v1alpha1.ClusterList{}, client.InNamespace(objects.DefaultNamespace))
	})
}

// A member whose credential was revoked keeps its imports, its new exports report what to do, and
// it works again with a new invitation.
func TestRevokedCredential(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, north := f.Members[0], f.Members[2]
	serve(t, north, ns, "old", "10.3.0.1")
	serve(t, east, ns, "web", "10.1.0.1")
	north.AwaitExported(t, ns, "old")
	north.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	awaitNoWrites(t, f.Broker, north.CP)
	unchanged := unchangedCheck(t, ns, north)
	invited, err := brokeradmin.Invite(context.Background(), f.Admin, north.ID, brokeradmin.InviteOptions{
		Server: f.Broker.Config().Host, CAData: f.Broker.Config().CAData, Renew: true, Revoke: true,
	})
	must(t, err)
	joined := false
	join := func() {
		if !joined {
			_, err := brokeradmin.Join(context.Background(), north.Client, invited.Membership, brokeradmin.JoinOptions{})
			must(t, err)
			joined = true
		}
	}
	t.Cleanup(join)
	harness.Consistently(t, "imports and exports do not change", 2*time.Second, unchanged)
	// API servers cache for ten seconds that a token is valid.
	harness.Eventually(t, "the old token is refused", func() error {
		names := &v1alpha1.ClusterList{}
		c, err := brokeradmin.NewClient(membershipOf(t, north).Config())
		if err == nil {
			err = c.List(context.Background(), names, client.InNamespace(objects.DefaultNamespace))
		}
		if err == nil {
			return fmt.Errorf("it can still list %d clusters", len(names.Items))
		}
		return nil
	})
	serve(t, north, ns, "new", "10.3.0.2")
	awaitNotReady(t, north, ns, "new", v1alpha1.ServiceExportReasonWaitingForBroker, "credential", "join again")
	north.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	join() // the agent is not restarted
	north.AwaitExported(t, ns, "new")
	east.AwaitImport(t, ns, "new", sources{"north": {"10.3.0.2"}})
}
