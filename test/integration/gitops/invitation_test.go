package gitops_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// An invitation that is applied again, however old, changes nothing while the agent's own token is
// newer. A new one is taken up, also by an agent that is locked out.
func TestInvitationIsAppliedAgain(t *testing.T) {
	cps := harness.Fresh(t, 2)
	b, cp := newBroker(t, cps[0]), cps[1]
	east := memberOf(t, cp, "east")
	first := b.invite(t, "east")
	apply(t, east.Client, rendered(t, nil))
	apply(t, east.Client, asSecret(t, first))
	_, stop := runAgent(t, cp)
	awaitStored(t, east.Client, first)
	ns := fleet.NewNamespace(t, east)
	exports := 0
	works := func(when string) {
		t.Helper()
		exports++
		name := fmt.Sprintf("web-%d", exports)
		east.Serve(t, fleet.NewService(ns, name), fmt.Sprintf("10.1.0.%d", exports))
		east.Export(t, ns, name)
		harness.Eventually(t, when+" exports are published", func() error {
			c, err := east.Condition(ns, name, mcsv1beta1.ServiceExportConditionReady)
			if err == nil && c.Status != metav1.ConditionTrue {
				err = fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
			return err
		})
	}
	applyAgain := func(m objects.Membership, round int) {
		t.Helper()
		secret := asSecret(t, m)
		secret[0].SetAnnotations(map[string]string{"round": fmt.Sprint(round)}) // a change that the agent sees
		apply(t, east.Client, secret)
	}
	keeps := func(when string, want objects.Membership) {
		t.Helper()
		harness.Consistently(t, when, 3*time.Second, func() error {
			m, err := stored(east.Client)
			if err == nil && m.Token != want.Token {
				err = fmt.Errorf("the stored token is of %s", issuedAt(m))
			}
			return err
		})
	}
	works("after the first invitation")

	renewed := b.renewLater(t, "east", first.Token) // as the agent's own renewal
	fleet.Update(t, east, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) {
		s.Data["token"] = []byte(renewed.Token)
	})
	applyAgain(first, 1)
	keeps("the invitation is applied again", renewed)
	works("with the renewed token")
	stop()
	log, stop := runAgent(t, cp)
	keeps("the agent restarts", renewed)
	works("after a restart")

	// The credential is revoked. Applying the old invitation again does not help, the new one does.
	locked := b.renewLater(t, "east", renewed.Token, revoke)
	log.await(t, "the broker refuses the token of this member")
	applyAgain(first, 2)
	keeps("the old invitation is applied to a locked-out agent", renewed)
	applyAgain(locked, 3)
	awaitStored(t, east.Client, locked)
	works("after a new invitation")

	moved := first // an old token: only the address is new
	moved.Server = cps[0].DirectConfig().Host
	restored := locked
	restored.Server = moved.Server
	t.Run("another address", func(t *testing.T) {
		applyAgain(moved, 4)
		awaitStored(t, east.Client, restored)
		works("at the new address")
	})
	t.Run("replaced by what the chart has", func(t *testing.T) {
		fleet.Update(t, east, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) { s.Data = nil })
		applyAgain(moved, 5)
		awaitStored(t, east.Client, restored)
		works("with the restored membership")
	})
	t.Run("for another cluster", func(t *testing.T) {
		other := b.invite(t, "west")
		applyAgain(other, 6)
		log.await(t, "not using the invitation", "run seamark leave first")
		keeps("an invitation for another cluster", locked)
		works("with an invitation for another cluster")
	})
	whole := t // the agent runs longer than the subtest
	t.Run("deleted", func(t *testing.T) {
		must(t, east.Client.Delete(context.Background(), first.Invitation()))
		stop()
		_, stop = runAgent(whole, cp)
		keeps("the invitation is deleted", locked)
		works("without an invitation")
	})
	t.Run("a token with a wrong time", func(t *testing.T) {
		// The clock of the broker was a year ahead when it issued the stored token.
		claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, time.Now().AddDate(1, 0, 0).Unix(), time.Now().AddDate(1, 0, 3).Unix())
		wrong := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".eA"
		usable := b.renewLater(t, "east", locked.Token)
		usable.Server = cps[0].DirectConfig().Host
		fleet.Update(t, east, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) {
			s.Data["token"] = []byte(wrong)
		})
		apply(t, east.Client, asSecret(t, usable))
		harness.Eventually(t, "the agent renews with the invitation", func() error {
			m, err := stored(east.Client)
			if err == nil && m.Token == wrong {
				err = fmt.Errorf("the wrong token is still stored")
			}
			return err
		})
		works("with the invitation")
	})
	stop()
}

// A member of a version that kept everything in one Secret stays a member, and takes up a new
// invitation.
func TestUpgradeFromOneSecret(t *testing.T) {
	cps := harness.Fresh(t, 2)
	b, cp := newBroker(t, cps[0]), cps[1]
	east := memberOf(t, cp, "east")
	first := b.invite(t, "east")
	_, err := brokeradmin.Join(context.Background(), east.Client, first, brokeradmin.JoinOptions{})
	must(t, err)
	must(t, east.Client.Delete(context.Background(), first.Invitation()))
	fleet.Update(t, east, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) {
		s.Labels, s.Annotations = map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}, nil
	})
	apply(t, east.Client, rendered(t, nil))
	m, err := stored(east.Client)
	if err != nil || m.Token != first.Token {
		t.Fatalf("applying the chart changed the membership: %v, %v", m.ClusterID, err)
	}
	runAgent(t, cp)
	ns := fleet.NewNamespace(t, east)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	east.AwaitExported(t, ns, "web")
	second := b.renewLater(t, "east", first.Token, revoke)
	apply(t, east.Client, asSecret(t, second))
	awaitStored(t, east.Client, second)
	east.Serve(t, fleet.NewService(ns, "more"), "10.1.0.2")
	east.Export(t, ns, "more")
	east.AwaitExported(t, ns, "more")
}

// Join writes the objects that users apply, and leave deletes them.
func TestJoinAndLeaveUseTheSameObjects(t *testing.T) {
	cps := harness.Fresh(t, 2)
	b, cp := newBroker(t, cps[0]), cps[1]
	east := memberOf(t, cp, "east")
	m := b.invite(t, "east")
	_, err := brokeradmin.Join(context.Background(), east.Client, m, brokeradmin.JoinOptions{})
	must(t, err)
	m.DataPlane = "service" // join stores its choice
	if changes := drift(t, east.Client, asSecret(t, m)); len(changes) > 0 {
		t.Errorf("applying the invitation of join changes %v", changes)
	}
	if got, err := stored(east.Client); err != nil || got.Token != m.Token {
		t.Errorf("stored %v (%v)", got.ClusterID, err)
	}
	left, err := brokeradmin.Leave(context.Background(), east.Client)
	must(t, err)
	for _, secret := range []client.Object{m.Invitation(), m.Secret()} {
		if !absent(east.Client, secret) {
			t.Errorf("leave (%+v) left secret %s", left, secret.GetName())
		}
	}
}
