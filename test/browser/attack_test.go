package browser_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	cd "github.com/chromedp/chromedp"

	"github.com/seamark-dev/seamark/test/browser"
)

// attacker returns a browser in which the name of an attacker's site points to this machine, as DNS
// rebinding makes it.
func attacker(t *testing.T) func(address string) *browser.Tab {
	t.Helper()
	ctx, stop, err := browser.Launch(cd.Flag("host-resolver-rules", "MAP attacker.example 127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return func(address string) *browser.Tab { return browser.OpenIn(t, ctx, address) }
}

// A site whose name was rebound to this machine is of the same origin as the page, for the browser.
// The server refuses its name.
func TestRebinding(t *testing.T) {
	f := newFixture(t, 10, 3, 5)
	open := attacker(t)
	_, port, err := net.SplitHostPort(f.address)
	if err != nil {
		t.Fatal(err)
	}
	tab := open(fmt.Sprintf("http://attacker.example:%s/services#token=%s", port, token))
	tab.Expect("403")
	tab.Expect("Cross-Origin-Opener-Policy header has been ignored") // for a site without HTTPS, as the attacker's
	if text := tab.Text("body"); !strings.Contains(text, "served for localhost") || strings.Contains(text, "team-") {
		t.Errorf("the attacker sees: %s", text)
	}
	for _, path := range []string{"/api/state", "/api/stream", "/api/save", "/assets/app.js"} {
		got := browser.Eval[string](tab, fmt.Sprintf(
			`fetch(%q, {headers: {Authorization: "Bearer %s", "Last-Event-ID": "0"}}).then((r) =>
				r.status + " " + r.headers.get("content-type"), String)`, path, token))
		if !strings.HasPrefix(got, "403 ") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A page of another site can neither read the data, nor frame the page, nor run its scripts with
// another's token.
func TestOtherSite(t *testing.T) {
	f := newFixture(t, 10, 3, 5)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>other</title><iframe src="http://%s/services#token=%s"></iframe>`, f.address, token)
	}))
	t.Cleanup(site.Close)
	open := attacker(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(site.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	tab := open("http://attacker.example:" + port + "/")
	for _, text := range []string{"frame-ancestors", "CORS", "net::ERR", "403", "405", "blocked", "Refused to", "404"} {
		tab.Expect(text)
	}
	for _, options := range []string{`{}`, `{credentials: "include"}`, `{method: "POST"}`,
		fmt.Sprintf(`{headers: {Authorization: "Bearer %s"}}`, token)} {
		got := browser.Eval[string](tab, fmt.Sprintf(`fetch("http://%s/api/state", %s).then((r) => r.text(), (err) => "failed: " + err)`,
			f.address, options))
		if !strings.HasPrefix(got, "failed: ") {
			t.Errorf("with %s the other site reads: %.100s", options, got)
		}
	}
	opaque := browser.Eval[string](tab, fmt.Sprintf(`fetch("http://%s/api/state", {mode: "no-cors"}).then((r) =>
		r.type + r.status, (err) => "failed: " + err)`, f.address))
	if opaque != "opaque0" && !strings.HasPrefix(opaque, "failed: ") {
		t.Errorf("without CORS: %s", opaque)
	}
	tab.Until("the frame is empty", `!document.querySelector("iframe").contentDocument?.querySelector("header")`)
}

// Names and messages of a clusterset are text, whatever they look like: no script of theirs runs.
func TestDataIsText(t *testing.T) {
	f := newFixture(t, 10, 3, 5)
	const evil = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	for _, row := range f.now.Rows {
		for i := range row.Groups {
			row.Groups[i].Detail, row.Groups[i].Cure, row.Groups[i].Title, row.Groups[i].Code = evil, evil, evil, evil
		}
	}
	f.now.ClusterSet = evil
	f.now.Clusters[0].Problem = evil
	for _, path := range []string{"/services", "/clusters", "/service/team-00/service-0000?at=1"} {
		tab := f.open(path)
		tab.Shows("body", evil)
		if title := browser.Eval[string](tab, `document.title`); strings.Contains(title, "owned") {
			t.Error("a script in the data ran")
		}
		if n := browser.Eval[int](tab, `document.querySelectorAll("img[src=x]").length`); n > 0 {
			t.Error("data became markup")
		}
		// The policy stops scripts that are put into the page in other ways.
		tab.Expect("Content Security Policy")
		tab.Expect("TrustedHTML")
		got := browser.Eval[string](tab, `(() => { try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); return "inserted"; }
			catch (err) { return err.name; } })()`)
		if got != "TypeError" {
			t.Errorf("markup can be inserted: %s", got)
		}
	}
}
