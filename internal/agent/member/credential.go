package member

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
	// renewAtFraction is the fraction of a token's lifetime after which it is renewed.
	renewAtFraction    = 0.2
	renewRetryInterval = time.Minute
)

// Credential is this member's token for the broker. It is renewed long before it expires and stored
// in the membership Secret, where the next leader reads it.
type Credential struct {
	token atomic.Pointer[string]
}

// NewCredential returns a credential with the token of a membership.
func NewCredential(token string) *Credential {
	c := &Credential{}
	c.token.Store(&token)
	return c
}

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
	req.Header.Set("Authorization", "Bearer "+*b.credential.token.Load())
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
}

// Start renews until ctx ends. It is run by the leader only, which first reads the token that its
// predecessor renewed.
func (r *Renewal) Start(ctx context.Context) error {
	if err := r.reload(ctx); err != nil {
		r.Log.Error(err, "cannot read the stored token; using the one read at start")
	}
	for {
		wait := untilRenewal(*r.Credential.token.Load(), time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := r.renew(ctx); err != nil {
			r.Log.Error(err, "cannot renew the token for the broker; retrying", "interval", renewRetryInterval)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(renewRetryInterval):
			}
		}
	}
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
	if old := r.Credential.token.Swap(&token); *old != token {
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
	r.Credential.token.Store(&m.Token)
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
	secret.Data = m.Secret().Data
	if err := r.Local.Update(ctx, secret); err != nil {
		return fmt.Errorf("store the renewed token: %w", err)
	}
	r.Credential.token.Store(&m.Token)
	r.Log.Info("renewed the token for the broker", "expires", request.Status.ExpirationTimestamp.Time)
	return nil
}

// untilRenewal returns how long to wait before a token is renewed. A token whose times cannot be
// read is renewed at once.
func untilRenewal(token string, now time.Time) time.Duration {
	issued, expires, ok := lifetime(token)
	if !ok {
		return 0
	}
	return max(0, issued.Add(time.Duration(float64(expires.Sub(issued))*renewAtFraction)).Sub(now))
}

// lifetime reads when a token was issued and when it expires. The times only schedule its renewal,
// so the signature is not checked.
func lifetime(token string) (issued, expires time.Time, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return issued, expires, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issued, expires, false
	}
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= claims.Issued {
		return issued, expires, false
	}
	return time.Unix(claims.Issued, 0), time.Unix(claims.Expires, 0), true
}
