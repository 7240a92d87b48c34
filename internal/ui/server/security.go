package server

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy is the content security policy of the page: its own scripts and styles, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// NewToken returns a random token.
func NewToken() string { return rand.Text() }

// guard checks each request before any handler sees it.
func guard(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		switch {
		case !isLoopback(r.Host):
			// A page of another site whose name was made to point here (DNS rebinding) has that name.
			http.Error(w, "this page is served for localhost, 127.0.0.1 and [::1] only", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		case strings.HasPrefix(r.URL.Path, apiPath) && !sameOrigin(r.Header.Get("Sec-Fetch-Site")):
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, apiPath) && !authorized(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong: open the address that seamark ui printed", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// isLoopback reports whether the Host of a request names this machine. Its port does not matter: a
// port-forward may use another than the server.
func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback() && addr.Zone() == ""
}

// sameOrigin reports whether a request comes from the page itself or from no page at all. Browsers
// set the header, and pages cannot change it.
func sameOrigin(site string) bool { return site == "" || site == "same-origin" || site == "none" }

func authorized(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}
