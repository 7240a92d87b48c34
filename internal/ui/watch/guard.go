package watch

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// Questions are the requests beside GET that a Guard lets through. None of them creates an object.
type Questions struct {
	// Forward allows port-forwards to pods of Seamark: DNS is asked through one.
	Forward bool
	// Token allows tokens of the ServiceAccount that may read what proxies have programmed, and
	// nothing else.
	Token bool
}

// Guard returns a configuration whose requests can change nothing: all methods but GET are refused
// before they are sent, with the exception of the questions.
func Guard(config *rest.Config, allowed Questions) *rest.Config {
	guarded := rest.CopyConfig(config)
	guarded.Wrap(func(next http.RoundTripper) http.RoundTripper { return &guard{next, allowed} })
	return guarded
}

type guard struct {
	next    http.RoundTripper
	allowed Questions
}

// RoundTrip sends a request that changes nothing, and refuses others.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !g.isQuestion(req) {
		if req.Body != nil {
			_ = req.Body.Close() // a transport must close it
		}
		return nil, fmt.Errorf("the page only reads: it does not send %s %s", req.Method, req.URL.Path)
	}
	return g.next.RoundTrip(req)
}

// isQuestion reports whether a request is one of the allowed questions.
func (g *guard) isQuestion(req *http.Request) bool {
	const namespace = "/api/v1/namespaces/" + objects.AgentNamespace
	where := path.Clean(req.URL.Path)
	if req.Method != http.MethodPost || where != req.URL.Path {
		return false
	}
	_, where, found := strings.Cut(where, namespace) // an API server may be behind a path
	if !found {
		return false
	}
	pod, rest, _ := strings.Cut(strings.TrimPrefix(where, "/pods/"), "/")
	switch {
	case g.allowed.Token && where == "/serviceaccounts/"+programmed.ReaderAccount+"/token":
		return true
	case g.allowed.Forward && strings.HasPrefix(where, "/pods/") && pod != "" && rest == "portforward":
		return true
	}
	return false
}
