package faults_test

import (
	"context"
	"encoding/base64"
	"fmt"
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
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// aged is a token whose times say that it was issued and ends at these distances from now. No server accepts it.
func aged(issued, ends time.Duration) string {
	now := time.Now()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(issued).Unix(), now.Add(ends).Unix())) + "." + part("x")
}

// A token is renewed once a fifth of its life is over, stored for the next agent, and used.
func TestTokenIsRenewed(t *testing.T) {
	f := clusterset(t)
	north := f.Members[2]
	north.Stop()
	t.Cleanup(func() { start(t, north) })
	membership := membershipOf(t, north)
	good := membership.Token
	store := func(token string) {
		fleet.Update(t, north, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["token"] = []byte(token) })
	}
	t.Cleanup(func() {
		if t.Failed() {
			store(good)
		}
	})
	renew := func(token string) (stop func()) {
		store(token)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		renewal := &member.Renewal{
			Credential: member.NewCredential(token), Membership: membership, Local: north.Client,
			Broker: asMember(t, membership), Log: testr.New(t),
		}
		go func() { done <- renewal.Start(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	young := aged(-11*time.Hour, 61*time.Hour) // 15 % of 72 hours
	stop := renew(young)
	harness.Consistently(t, "a young token is left alone", 2*time.Second, func() error {
		if now := membershipOf(t, north).Token; now != young {
			return fmt.Errorf("it was replaced by %.40s…", now)
		}
		return nil
	})
	stop()
	old := aged(-15*time.Hour, 57*time.Hour) // 21 %
	stop = renew(old)
	defer stop()
	harness.Eventually(t, "an older token is renewed and stored", func() error {
		if membershipOf(t, north).Token == old {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	renewed := membershipOf(t, north)
	if renewed.Token == good || renewed.ClusterID != membership.ClusterID || renewed.Server != membership.Server || renewed.DataPlane != membership.DataPlane {
		t.Errorf("stored %+v", renewed)
	}
	must(t, asMember(t, renewed).List(context.Background(), &v1alpha1.ClusterList{}, client.InNamespace(objects.DefaultNamespace)))
}

// A member whose credential was revoked keeps what it has, says on new exports what to do, and works again with a new
// invitation.
func TestRevokedCredential(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, north := f.Members[0], f.Members[2]
	serve(t, north, ns, "old", "10.3.0.1")
	serve(t, east, ns, "web", "10.1.0.1")
	exported(t, north, ns, "old")
	imported(t, north, ns, "web", sources{"east": {"10.1.0.1"}})
	quiet(t, f.Broker, north.CP)
	unchanged := frozen(t, ns, north)
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
	harness.Consistently(t, "what it has stays", 2*time.Second, unchanged)
	// API servers remember for ten seconds that a token was good; then it is not.
	harness.Eventually(t, "the old token is refused", func() error {
		names := &v1alpha1.ClusterList{}
		c, err := brokeradmin.NewClient(membershipOf(t, north).Config())
		if err == nil {
			err = c.List(context.Background(), names, client.InNamespace(objects.DefaultNamespace))
		}
		if err == nil {
			return fmt.Errorf("it still reads %d clusters", len(names.Items))
		}
		return nil
	})
	serve(t, north, ns, "new", "10.3.0.2")
	if message := pending(t, north, ns, "new"); !strings.Contains(message, "credential") || !strings.Contains(message, "join again") {
		t.Errorf("the export says %q: want the reason and what to do", message)
	}
	imported(t, north, ns, "web", sources{"east": {"10.1.0.1"}})
	join() // the agent runs on
	exported(t, north, ns, "new")
	imported(t, east, ns, "new", sources{"north": {"10.3.0.2"}})
}
