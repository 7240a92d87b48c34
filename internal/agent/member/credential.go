package member

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/agent/trigger"
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
	c := &Credential{changed: make(chan struct{}, 1)}
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
	select {
	case c.changed <- struct{}{}:
	default: // the change before this one has not been noticed yet
	}
	return true
}

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
	return b.next.RoundTrip(req)
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

	requested atomic.Pointer[heldToken] // the last token that this process requested
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

// WatchMembership uses the token that joining again has stored. It returns an error if the cluster
// left or joined as another member: the agent must exit then, or it would restore the objects that
// leaving deletes. It is run in all replicas: each may have to renew the lease.
func (r *Renewal) WatchMembership(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	ended := make(chan error, 1)
	check := func(secret *corev1.Secret) {
		if err := r.adoptToken(secret); err != nil {
			select {
			case ended <- err:
			default: // another error was reported before
			}
		}
	}
	registration, err := informer.AddEventHandler(trigger.EventHandler[*corev1.Secret]{
		Add:    check,
		Update: func(_, secret *corev1.Secret) { check(secret) },
		Delete: func(*corev1.Secret, bool) { check(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only for an unknown registration
	// A replica that was not the leader may have missed that the cluster left.
	if _, err := r.secret(ctx); apierrors.IsNotFound(err) {
		check(nil)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// adoptToken uses the token in a Secret whose membership is otherwise the one the agent started
// with.
func (r *Renewal) adoptToken(secret *corev1.Secret) error {
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return fmt.Errorf("the membership ended: %w", err)
	}
	if err := CheckSecret(secret, m); err != nil {
		return err
	}
	token := m.Token
	m.Token = r.Membership.Token
	if !equality.Semantic.DeepEqual(m, r.Membership) {
		return errors.New("the membership changed: the agent must restart")
	}
	held := storedToken(token, r.now())
	if requested := r.requested.Load(); requested != nil && requested.text == token {
		held = requested
	}
	if r.Credential.hold(held) {
		r.Log.Info("using the stored token for the broker")
	}
	return nil
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
	secret := &corev1.Secret{}
	err := r.Local.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	return secret, nil
}

// renew requests a new token from the broker with the current one, and stores it before it is used:
// a token that is not stored would be lost with this process.
func (r *Renewal) renew(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Membership.Namespace, Name: objects.MemberAccount(r.Membership.ClusterID),
	}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(TokenLifetime.Seconds())),
	}}
	if err := r.Broker.SubResource("token").Create(ctx, account, request); err != nil {
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

// timesOf reads when a token was issued and how long it lives. The times only schedule its renewal,
// so the signature is not checked.
func timesOf(token string) (issued time.Time, lifetime time.Duration) {
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) == 3 {
		if payload, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(payload, &claims) // the shortest lifetime is assumed below
		}
	}
	if claims.Expires <= claims.Issued {
		return time.Time{}, shortestLifetime
	}
	return time.Unix(claims.Issued, 0), time.Duration(claims.Expires-claims.Issued) * time.Second
}
