package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// TokenLifetime bounds how long a stolen token can be used, and how long a member may be cut off
	// from its broker without being invited again.
	TokenLifetime = 72 * time.Hour
	// renewAtFraction is the fraction of a token's lifetime after which it is renewed. Each member
	// adds a random part of renewSpread, so that members that joined together do not renew together.
	renewAtFraction = 0.2
	renewSpread     = 0.05
	// overdueSpread is the time over which members renew that find their tokens due when they start.
	overdueSpread      = 10 * time.Second
	renewRetryInterval = time.Minute
	// shortestLifetime is the shortest lifetime that API servers grant. It is assumed for a token
	// whose times cannot be read.
	shortestLifetime = 10 * time.Minute
)

// Credential is this member's token for the broker. It is renewed long before it expires and stored
// in the membership Secret, where the next leader reads it.
type Credential struct {
	held    atomic.Pointer[heldToken]
	changed chan struct{} // has an element when the token changed
	refused chan struct{} // has an element when the broker refused the token
}

// heldToken is a token and how long it lives. The times are this process's own: the broker's clock,
// by which tokens are issued, may be hours off from this one.
type heldToken struct {
	text     string
	begun    time.Time
	lifetime time.Duration
	part     float64 // of renewSpread, from 0 to 1
}

// NewCredential returns a credential with the token of a membership.
func NewCredential(token string) *Credential {
	c := &Credential{changed: make(chan struct{}, 1), refused: make(chan struct{}, 1)}
	c.held.Store(storedToken(token, time.Now()))
	return c
}

// storedToken returns a token that this process did not request. How old it is can only be
// estimated, by the time at which the broker issued it.
func storedToken(text string, now time.Time) *heldToken {
	issued, lifetime := timesOf(text)
	age := min(max(now.Sub(issued), 0), lifetime)
	return &heldToken{text, now.Add(-age), lifetime, rand.Float64()}
}

// renewedToken returns a token that this process has just received.
func renewedToken(text string, now time.Time) *heldToken {
	_, lifetime := timesOf(text)
	return &heldToken{text, now, lifetime, rand.Float64()}
}

// used returns how much of the token's lifetime is over: 1 means that it has expired.
func (h *heldToken) used(now time.Time) float64 {
	return now.Sub(h.begun).Seconds() / h.lifetime.Seconds()
}

// untilRenewal returns how long to wait before the token is renewed. One that is due is renewed
// soon, and long before it expires.
func (h *heldToken) untilRenewal(now time.Time) time.Duration {
	age := now.Sub(h.begun)
	wait := part(h.lifetime, renewAtFraction+renewSpread*h.part) - age
	return max(wait, part(min(overdueSpread, max(0, h.lifetime-age)/4), h.part))
}

func part(d time.Duration, fraction float64) time.Duration {
	return time.Duration(float64(d) * fraction)
}

// hold uses a token from now on and reports whether it is another one than before.
func (c *Credential) hold(token *heldToken) bool {
	if c.held.Load().text == token.text {
		return false
	}
	c.held.Store(token)
	signal(c.changed)
	return true
}

// signal never blocks: one pending element is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Token returns the token that is used now.
func (c *Credential) Token() string { return c.held.Load().text }

// LifetimeUsed returns how much of the token's lifetime is over: 1 means that it has expired.
func (c *Credential) LifetimeUsed() float64 { return c.held.Load().used(time.Now()) }

// Config returns the broker's client configuration. Each request carries the credential's current
// token.
func (c *Credential) Config(m objects.Membership) *rest.Config {
	cfg := m.Config()
	cfg.BearerToken = ""
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{c, next} })
	return cfg
}

type bearer struct {
	credential *Credential
	next       http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.credential.held.Load().text)
	response, err := b.next.RoundTrip(req)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		signal(b.credential.refused)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// Renewal renews the credential before it expires.
type Renewal struct {
	Credential *Credential
	Membership objects.Membership
	Local      client.Client // uncached
	Broker     client.Client // uncached
	Log        logr.Logger
	// Now is the clock of this process; time.Now when nil.
	Now func() time.Time
	// Secrets are the names of the Secrets of the membership; those of an agent when empty.
	Secrets SecretNames

	requested atomic.Pointer[heldToken] // the last token that this process requested
	tried     string                    // the token of an invitation that the broker refused too
}

// Start renews until ctx ends. It is run by the leader only, which first reads the token that its
// predecessor renewed. A token that joining again stores is renewed by its own lifetime.
func (r *Renewal) Start(ctx context.Context) error {
	if err := r.reload(ctx); err != nil {
		r.Log.Error(err, "cannot read the stored token; using the one read at start")
	}
	var attempted time.Time
	var pause time.Duration
	for {
		now := r.now()
		// Whatever the clocks and the tokens say, there is at most one attempt per interval.
		wait := max(r.Credential.held.Load().untilRenewal(now), pause-now.Sub(attempted))
		select {
		case <-ctx.Done():
			return nil
		case <-r.Credential.changed:
			continue
		case <-r.Credential.refused:
			r.tryInvitation(ctx)
			continue
		case <-time.After(wait):
		}
		attempted, pause = r.now(), renewRetryInterval/2+rand.N(renewRetryInterval)
		if err := r.renew(ctx); err != nil {
			r.Log.Error(err, "cannot renew the token for the broker; retrying", "interval", pause)
		}
	}
}

func (r *Renewal) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *Renewal) reload(ctx context.Context) error {
	secret, err := r.secret(ctx)
	if err != nil {
		return err
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return err
	}
	r.Credential.hold(storedToken(m.Token, r.now()))
	return nil
}

func (r *Renewal) secret(ctx context.Context) (*corev1.Secret, error) {
	secret, name := &corev1.Secret{}, r.Secrets.membership()
	if err := r.Local.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, name, err)
	}
	return secret, nil
}

// renew requests a new token from the broker with the current one, and stores it before it is used:
// a token that is not stored would be lost with this process.
func (r *Renewal) renew(ctx context.Context) error { return r.renewWith(ctx, r.Broker) }

func (r *Renewal) renewWith(ctx context.Context, broker client.Client) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Membership.Namespace, Name: objects.MemberAccount(r.Membership.ClusterID),
	}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(TokenLifetime.Seconds())),
	}}
	if err := broker.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("request a new token from the broker: %w", err)
	}
	secret, err := r.secret(ctx)
	if err != nil {
		return err
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return err
	}
	if m.ClusterID != r.Membership.ClusterID || m.Server != r.Membership.Server {
		return fmt.Errorf("the membership changed to cluster %s at %s: restart the agent", m.ClusterID, m.Server)
	}
	m.Token = request.Status.Token
	renewed := renewedToken(m.Token, r.now())
	r.requested.Store(renewed) // before the watch of the Secret shows it
	secret.Data = m.Secret().Data
	if err := r.Local.Update(ctx, secret); err != nil {
		return fmt.Errorf("store the renewed token: %w", err)
	}
	r.Credential.hold(renewed)
	r.Log.Info("renewed the token for the broker", "expires", request.Status.ExpirationTimestamp.Time)
	return nil
}

// tryInvitation renews with the token of the invitation, after the broker refused the current one.
// By its times the current token is the newer one, but the clock of the broker may have been wrong
// when it was issued.
func (r *Renewal) tryInvitation(ctx context.Context) {
	invitation, _, err := (&Memberships{Client: r.Local, Log: r.Log, Secrets: r.Secrets}).invitation(ctx)
	if err != nil || invitation == nil || invitation.Token == r.tried || invitation.Token == r.Credential.held.Load().text {
		return
	}
	if _, err := objects.TakeUp(*invitation, &r.Membership); err != nil || invitation.Server != r.Membership.Server {
		return // it is for another member; Memberships reports it
	}
	cfg := invitation.Config()
	cfg.Timeout = writeTimeout
	broker, err := client.New(cfg, client.Options{Scheme: r.Broker.Scheme(), Mapper: r.Broker.RESTMapper()})
	if err == nil {
		err = r.renewWith(ctx, broker)
	}
	if apierrors.IsUnauthorized(err) {
		r.tried = invitation.Token
	}
	if err != nil {
		r.Log.Error(err, "the broker refuses the token of this member, and the one of the invitation does not help")
	}
}

// timesOf reads when a token was issued and how long it lives. It assumes the shortest lifetime for
// a token that does not say so.
func timesOf(token string) (issued time.Time, lifetime time.Duration) {
	issued, expires := objects.TokenTimes(token)
	if issued.IsZero() {
		return time.Time{}, shortestLifetime
	}
	return issued, expires.Sub(issued)
}
