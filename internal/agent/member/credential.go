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
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// TokenLifetime bounds how long a stolen token is of use, and how long a member may be cut off from its broker without
	// being invited again.
	TokenLifetime = 72 * time.Hour
	// renewAfter is the part of a token's life after which it is renewed.
	renewAtFraction = 0.2
	renewRetryInterval = time.Minute
)

// Credential is this member's token for the broker. It is renewed long before it ends and kept in the membership Secret, from
// where the next agent takes it.
type Credential struct {
	token atomic.Pointer[string]
}

// NewCredential starts with the token of a membership.
func NewCredential(token string) *Credential {
	c := &Credential{}
	c.token.Store(&token)
	return c
}

// Config is the broker's client configuration with the credential's current token on each request.
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

// Renewal keeps the credential fresh.
type Renewal struct {
	Credential *Credential
	Membership objects.Membership
	Local      client.Client // uncached
	Broker     client.Client // uncached
	Log        logr.Logger
}

// Start renews until ctx ends. It is run by the leader only, which first takes over what its predecessor renewed.
func (r *Renewal) Start(ctx context.Context) error {
	if err := r.reload(ctx); err != nil {
		r.Log.Error(err, "cannot read the membership again; going on with the token from the start")
	}
	for {
		wait := untilRenewal(*r.Credential.token.Load(), time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := r.renew(ctx); err != nil {
			r.Log.Error(err, "cannot renew the token for the broker; trying again", "in", renewRetryInterval)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(renewRetryInterval):
			}
		}
	}
}

// Follow takes over the token that joining again has stored. It returns an error when the cluster left or became another
// member: the agent must end then, or it would put back what leaving takes away. It is run by the leader only.
func (r *Renewal) WatchMembership(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	ended := make(chan error, 1)
	look := func(secret *corev1.Secret) {
		if err := r.adoptToken(secret); err != nil {
			select {
			case ended <- err:
			default: // it has ended for another reason
			}
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { look(asSecret(obj)) },
		UpdateFunc: func(_, obj any) { look(asSecret(obj)) },
		DeleteFunc: func(any) { look(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only where there is none
	// A replica that waited for its turn may have missed that the cluster left.
	if _, err := r.secret(ctx); apierrors.IsNotFound(err) {
		look(nil)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func asSecret(obj any) *corev1.Secret {
	secret, _ := obj.(*corev1.Secret)
	return secret
}

// takeOver uses the token of a membership that is otherwise the one the agent was started with.
func (r *Renewal) adoptToken(secret *corev1.Secret) error {
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return fmt.Errorf("the membership ended: %w", err)
	}
	token := m.Token
	m.Token = r.Membership.Token
	if !equality.Semantic.DeepEqual(m, r.Membership) {
		return errors.New("the membership changed: the agent must start again")
	}
	if old := r.Credential.token.Swap(&token); *old != token {
		r.Log.Info("using the token for the broker that was stored")
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

// renew asks the broker for a new token as the member itself and stores it before it is used: a token nobody stored would be
// lost with this process.
func (r *Renewal) renew(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Membership.Namespace, Name: objects.MemberAccount(r.Membership.ClusterID),
	}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(TokenLifetime.Seconds())),
	}}
	if err := r.Broker.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("ask the broker for a new token: %w", err)
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

// untilRenewal is how long a token can still be used before it should be renewed. One whose times cannot be read is renewed
// at once.
func untilRenewal(token string, now time.Time) time.Duration {
	issued, expires, ok := lifetime(token)
	if !ok {
		return 0
	}
	return max(0, issued.Add(time.Duration(float64(expires.Sub(issued))*renewAtFraction)).Sub(now))
}

// lifetime reads the times of a token. They are only used to plan its renewal, so the signature does not matter here.
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
