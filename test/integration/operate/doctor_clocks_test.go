package operate_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark-dev/seamark/test/controlplane"
)

// API servers whose clocks are ahead of this machine's: by a minute, which misleads readers of
// logs, and by an hour, which invalidates credentials.
func TestDoctorClocks(t *testing.T) {
	term := sharedClusterset(t)
	for _, test := range []struct {
		ahead          time.Duration
		status, detail string
	}{
		{time.Minute, "warn", "ahead of this machine's; Seamark does not depend on that"},
		{time.Hour, "fail", "ahead of this machine's: credentials may be rejected"},
	} {
		const name = "ahead"
		term.changeKubeconfig(func(config *clientcmdapi.Config) {
			addContext(config, name, withClockAhead(t, term.east.CP, test.ahead))
		})
		line := "doctor --context " + name
		detail, fix := term.diagnosed(line, "clocks", "east", test.status)
		if !strings.Contains(detail, test.detail) || !strings.Contains(fix, "time server") {
			t.Errorf("%s ahead: %s: %s", test.ahead, detail, fix)
		}
		o := term.run("%s", line)
		for _, part := range []string{strings.ToUpper(test.status) + "  clocks", test.detail, fix} {
			if !strings.Contains(o.Stdout, part) {
				t.Errorf("%s ahead: the text lacks %q:\n%s%s", test.ahead, part, o.Stdout, o.Stderr)
			}
		}
		// The broker has its own clock.
		term.diagnosed(line, "clocks", "broker", "pass")
	}
	term.diagnosed("doctor --context east", "clocks", "east", "pass")
}

// withClockAhead returns a client configuration for a server that passes all requests on to the API
// server of a control plane, as its admin. It changes the Date of the answers as if the clock of
// that machine were ahead.
func withClockAhead(t *testing.T, cp *controlplane.ControlPlane, ahead time.Duration) *rest.Config {
	t.Helper()
	behind := cp.Config()
	target, err := url.Parse(behind.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(behind)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			date, err := http.ParseTime(r.Header.Get("Date"))
			if err != nil {
				return fmt.Errorf("the answer of the API server has no Date: %w", err)
			}
			r.Header.Set("Date", date.Add(ahead).Format(http.TimeFormat))
			return nil
		},
	})
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}
