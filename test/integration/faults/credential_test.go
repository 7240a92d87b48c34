package faults_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
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

// A token is renewed once a fifth of its lifetime is over. The new one is stored for the next agent
// and used by the running one.
func TestTokenIsRenewed(t *testing.T) {
	f := clusterset(t)
	north := f.Members[2]
	north.Stop()
	t.Cleanup(func() { start(t, north) })
	membership := membershipOf(t, north)
	good := membership.Token
	store := func(token string) {
		fleet.Update(t, north, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) {
			s.Data["token"] = []byte(token)
		})
	}
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
	old := unsignedToken(-15*time.Hour, 57*time.Hour) // 21 %
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
