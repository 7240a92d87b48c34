package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

const (
	// verdictTTL is how long an answer of the API server is used again.
	verdictTTL = time.Minute
	// outageTTL is how long a permission holds while the API server does not answer: metrics matter
	// most during an outage.
	outageTTL = 15 * time.Minute
	// maxVerdicts bounds the memory that requests with invented tokens can use, maxReviews the load
	// on the API server.
	maxVerdicts   = 256
	maxReviews    = 4
	reviewTimeout = 3 * time.Second
)

// gate admits requests of the node itself, and others whose token the API server knows and allows
// to get the path, as the metrics of Kubernetes' own components do.
type gate struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	log     logr.Logger
	reviews chan struct{} // one slot for each review that may run

	mu       sync.Mutex
	verdicts map[question]verdict
}

// question is what the API server is asked: may the owner of this token request this path?
type question struct {
	token        [sha256.Size]byte
	verb, target string
}

type verdict struct {
	allowed bool
	at      time.Time
}

// newGate returns the filter of the metrics server.
func newGate(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("review tokens: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("review access: %w", err)
	}
	g := &gate{
		tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), reviews: make(chan struct{}, maxReviews),
		verdicts: map[question]verdict{},
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		g.log = log
		return g.guard(next), nil
	}, nil
}

func (g *gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r.RemoteAddr) {
			next.ServeHTTP(w, r)
			return
		}
		token := bearerToken(r.Header)
		if token == "" {
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		ask := question{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
		switch allowed, err := g.decide(r.Context(), token, ask); {
		case err != nil:
			// explain and doctor must learn that this proxy is cut off, although they cannot be
			// admitted.
			g.log.Error(err, "cannot check a request", "path", ask.target)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			refusal := programmed.Refusal{CutOff: "the API server does not answer who may read this"}
			_ = json.NewEncoder(w).Encode(refusal) // the client is gone
		case !allowed:
			http.Error(w, fmt.Sprintf("the token may not %s %s", ask.verb, ask.target), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocal reports whether a request comes from the loopback interface: a process of the node, or a
// user who may forward a port to the pod.
func isLocal(remote string) bool {
	from, err := netip.ParseAddrPort(remote)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

func bearerToken(h http.Header) string {
	if token := h.Get(programmed.TokenHeader); token != "" {
		return token
	}
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// decide returns a fresh verdict, asks for one, or uses an old permission while the API server does
// not answer.
func (g *gate) decide(ctx context.Context, token string, ask question) (bool, error) {
	last, known := g.last(ask)
	if known && time.Since(last.at) < verdictTTL {
		return last.allowed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case g.reviews <- struct{}{}:
		defer func() { <-g.reviews }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	allowed, err := g.review(ctx, token, ask)
	if err != nil {
		if known && last.allowed && time.Since(last.at) < outageTTL {
			return true, nil
		}
		return false, err
	}
	g.remember(ask, verdict{allowed, time.Now()})
	return allowed, nil
}

func (g *gate) last(ask question) (verdict, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.verdicts[ask]
	return v, ok
}

func (g *gate) remember(ask question, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verdicts) >= maxVerdicts {
		for old, other := range g.verdicts {
			if !other.allowed || time.Since(other.at) > verdictTTL {
				delete(g.verdicts, old)
			}
		}
	}
	if len(g.verdicts) < maxVerdicts {
		g.verdicts[ask] = v
	}
}

// review asks the API server whose token it is, and whether that user may get the path.
func (g *gate) review(ctx context.Context, token string, ask question) (bool, error) {
	tokenReview := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	tokenReview, err := g.tokens.Create(ctx, tokenReview, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review a token: %w", err)
	}
	if !tokenReview.Status.Authenticated {
		return false, nil
	}
	user := tokenReview.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	accessReview := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: ask.target, Verb: ask.verb},
	}}
	accessReview, err = g.access.Create(ctx, accessReview, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	return accessReview.Status.Allowed, nil
}
