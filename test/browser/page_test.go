package browser_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/ui"
	"github.com/seamark-dev/seamark/internal/ui/server"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/test/browser"
	"github.com/seamark-dev/seamark/test/browser/generate"
	"github.com/seamark-dev/seamark/test/harness"
)

const token = "0123456789ABCDEF0123456789"

// fixture serves the page of a clusterset that was made up.
type fixture struct {
	t       testing.TB
	fleet   *generate.Fleet
	hub     *server.Hub
	now     *state.Snapshot
	address string
	stop    func()
}

func newFixture(t testing.TB, services, clusters, trouble int) *fixture {
	t.Helper()
	f := &fixture{t: t, fleet: generate.New(services, clusters, trouble)}
	f.fleet.Refresh(f.fleet.All()...)
	f.now = f.fleet.Snapshot(1)
	f.hub = server.NewHub(state.NewHistory(f.now))
	f.start("127.0.0.1:0")
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *fixture) start(address string) {
	f.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.address = l.Addr().String()
	s := server.New(server.Options{Hub: f.hub, Token: token, Live: true, Clean: strings.TrimSpace, Explain: f.explain})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	f.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
		f.stop = func() {}
	}
}

func (f *fixture) explain(_ context.Context, key types.NamespacedName) (explain.Report, bool) {
	for i := range f.fleet.Services {
		if generate.ServiceName(i) == key.String() {
			return f.fleet.Explain(i), true
		}
	}
	return explain.Report{}, false
}

// publish publishes the state after a change of the clusterset.
func (f *fixture) publish() {
	after := f.fleet.Snapshot(f.now.Seq + 1)
	d := state.Diff(f.now, after)
	d.Entries = state.NewObserver().Observe(f.now, after)
	f.hub.Publish(d, after)
	f.now = after
}

func (f *fixture) url(path string) string {
	return fmt.Sprintf("http://%s%s#token=%s", f.address, path, token)
}

func (f *fixture) open(path string) *browser.Tab {
	f.t.Helper()
	tab := browser.Open(f.t, f.url(path))
	tab.Ready()
	return tab
}

// rows returns the names of the services in the order of the matrix.
func rows(tab *browser.Tab) []string {
	return browser.Eval[[]string](tab, `[...document.querySelectorAll(".row:not([hidden])")]
		.sort((a, b) => a.getAttribute("aria-rowindex") - b.getAttribute("aria-rowindex")).map((r) => r.querySelector(".name").textContent)`)
}

// count returns how many services the matrix has, also those that are out of sight.
func count(tab *browser.Tab) int {
	return browser.Eval[int](tab, `Number(document.querySelector(".matrix").getAttribute("aria-rowcount"))`)
}

// Services with trouble come first, and the others are folded until they are asked for. Filters are
// in the address, so that it can be sent to a colleague.
func TestServices(t *testing.T) {
	f := newFixture(t, 60, 6, 10)
	tab := f.open("/services")
	if strings.Contains(tab.Location(), token) {
		t.Errorf("the token stays in the address: %s", tab.Location())
	}
	tab.Shows(".summary", "6 services with trouble, 6 services shown, 6 clusters.")
	if got := rows(tab); len(got) != 6 || got[0] != generate.ServiceName(0) {
		t.Errorf("shown: %v", got)
	}
	tab.Shows(".row .text", "broken: import-missing in east-000")
	tab.Screenshot("services")
	tab.Click(".more")
	tab.Shows(".summary", "60 services shown")
	tab.Until("the address has it", `location.search.includes("all=1")`)
	browser.Eval[any](tab, `(() => { const s = document.querySelector("#find"); s.value = "service-0010"; s.dispatchEvent(new Event("input")); })()`)
	tab.Until("one service is found", `document.querySelectorAll(".row:not([hidden])").length === 1`)
	colleague := f.open(tab.Location())
	colleague.Until("the same is shown", `document.querySelectorAll(".row:not([hidden])").length === 1`)
	for query, want := range map[string]string{
		"?ns=team-10": "2 services with trouble", "?verdict=ok": "54 services shown", "?verdict=fail": "2 services with trouble, 2 services shown",
		"?cluster=east-000&verdict=fail": "1 cluster.", "?q=port-conflict": "2 services shown",
	} {
		f.open("/services"+query).Shows(".summary", want)
	}
}

// Each row says in words what its cells show: a canvas says nothing to a screen reader.
func TestRowsSayWhatCellsShow(t *testing.T) {
	f := newFixture(t, 20, 6, 10)
	tab := f.open("/services?all=1")
	got := browser.Eval[[][]string](tab, `[...document.querySelectorAll(".row:not([hidden])")].map((r) =>
		[r.querySelector(".name").textContent, r.querySelector(".text").textContent])`)
	ids := f.now.IDs()
	for _, pair := range got {
		row := f.now.Row(pair[0])
		for _, at := range row.Exporters {
			if !strings.Contains(pair[1], ids[at]) {
				t.Errorf("%s does not name its exporter %s: %s", pair[0], ids[at], pair[1])
			}
		}
		for _, g := range row.Groups {
			if !strings.Contains(pair[1], g.Code) {
				t.Errorf("%s does not name %s: %s", pair[0], g.Code, pair[1])
			}
		}
	}
	if len(got) != 20 {
		t.Errorf("%d rows", len(got))
	}
}

func TestKeyboard(t *testing.T) {
	f := newFixture(t, 60, 6, 10)
	tab := f.open("/services")
	browser.Eval[any](tab, `document.querySelector(".matrix").focus()`)
	tab.Keys(kb.ArrowDown + kb.ArrowDown + kb.ArrowRight + kb.ArrowRight)
	tab.Until("the address has the selection", `location.search.includes("sel=") && location.search.includes("col=")`)
	selected := rows(tab)[2]
	tab.Shows("#announce", selected+" in "+f.now.IDs()[1])
	active := browser.Eval[string](tab, `document.getElementById(
		document.querySelector(".matrix").getAttribute("aria-activedescendant")).textContent`)
	if !strings.Contains(active, selected) {
		t.Errorf("the active row is %s", active)
	}
	tab.Keys(kb.Enter)
	tab.Shows("h2", selected)
	tab.Keys("c")
	tab.Shows("th", "Cluster")
	tab.Keys("s")
	tab.Keys("/")
	tab.Until("the search has the focus", `document.activeElement.id === "find"`)
}

// A change appears in place: scroll position, selection and focus stay.
func TestLiveUpdate(t *testing.T) {
	f := newFixture(t, 400, 6, 5)
	tab := f.open("/services?all=1")
	browser.Eval[any](tab, `document.querySelector(".matrix").focus()`)
	tab.Keys(strings.Repeat(kb.ArrowDown, 60))
	tab.Until("it has scrolled", `document.querySelector(".matrix").scrollTop > 0`)
	selected := browser.Eval[string](tab, `new URLSearchParams(location.search).get("sel")`)
	place := func() float64 {
		return browser.Eval[float64](tab, `document.querySelector(".row[aria-selected=true]").getBoundingClientRect().top`)
	}
	before := place()
	f.fleet.Trouble = 4 // others have trouble now, and come first
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	tab.Until("the change is shown", fmt.Sprintf(`document.documentElement.dataset.seq === "%d"`, f.now.Seq))
	tab.Until("the selection stays", fmt.Sprintf(`document.querySelector(".row[aria-selected=true] .name")?.textContent === %q`, selected))
	if after := place(); after != before {
		t.Errorf("the selected service was at %.0f, now it is at %.0f", before, after)
	}
	if focused := browser.Eval[string](tab, `document.activeElement.className`); focused != "matrix" {
		t.Errorf("the focus went to %s", focused)
	}
	tab.Shows("#timeline li", "import-missing")
}

// A cluster that does not answer makes its cells unknown, with the time at which it was last seen.
// Everything else stays.
func TestUnknownCluster(t *testing.T) {
	f := newFixture(t, 30, 6, 10)
	tab := f.open("/services?all=1&col=east-000&sel=" + generate.ServiceName(1))
	f.fleet.Problem["east-000"] = "connection refused"
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	tab.Shows("#notices", "A cluster does not answer: east-000 (last seen ")
	tab.Shows(".row .text", "unknown in east-000")
	tab.Shows(".cell-line", "east-000: unknown, last seen ")
	if n := count(tab); n != 30 {
		t.Errorf("%d services are shown", n)
	}
	tab.Screenshot("unknown-cluster")
	tab.Go(f.url("/clusters"))
	tab.Shows("tr[data-cluster=east-000]", "unknown, last seen ")
	tab.Shows("td", "unreachable")
	f.now.Broker.Problem = ""
	after := f.fleet.Snapshot(f.now.Seq + 1)
	after.Broker.Problem, after.Broker.LastSeen = "timeout", &f.fleet.Now
	f.hub.Publish(state.Diff(f.now, after), after)
	tab.Shows("#notices", "The broker does not answer, last seen ")
}

func TestServiceView(t *testing.T) {
	f := newFixture(t, 30, 6, 10)
	tab := f.open("/service/" + generate.ServiceName(0))
	tab.Shows("h2", "broken")
	tab.Shows(".finding[data-code=import-missing]", "there is no ServiceImport in cluster east-000")
	tab.Shows(".finding .cure", "do: ")
	tab.Shows(".copy", "copy: seamark explain service-0000 -n team-00 --contexts east-000,")
	tab.Shows(".hops tr[data-cluster=east-000] td", "import-missing")
	tab.Shows("h3", "Endpoints by cluster and zone")
	tab.Shows("h3", "DNS right now")
	tab.Screenshot("service")
	conflict := f.open("/service/" + generate.ServiceName(10))
	conflict.Shows(".finding[data-code=port-conflict]", "give the Service the same ports")
	missing := f.open("/service/shop/nothing")
	missing.Shows(".empty", "no cluster exports or imports it")
	missing.Expect("404")
}

func TestClustersView(t *testing.T) {
	f := newFixture(t, 30, 6, 10)
	tab := f.open("/clusters")
	tab.Shows("th", "Heartbeat")
	tab.Shows("tr[data-cluster=east-000]", "60 of 16,382")
	tab.Shows("td", "2.1 ms")
	tab.Screenshot("clusters")
	tab.Click("tr[data-cluster=west-003] .link")
	tab.Shows("h3", "Who reaches west-003")
	tab.Until("the address has it", `location.search.includes("cluster=west-003")`)
}

// The timeline leads to the state of its moments, and back.
func TestTimeline(t *testing.T) {
	f := newFixture(t, 30, 6, 0)
	tab := f.open("/services?all=1")
	tab.Shows("#timeline", "Nothing has changed since the page was opened.")
	f.fleet.Trouble = 10
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	tab.Shows("#timeline li", "port-conflict")
	f.fleet.Trouble = 0
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	tab.Shows("#timeline li", "is over")
	tab.Shows("#counts", "0 broken")
	browser.Eval[any](tab, `[...document.querySelectorAll("#timeline li button")].find((b) => b.textContent.includes("(import-missing)")).click()`)
	tab.Shows("#notices", "This is the state of ")
	tab.Shows("#counts", "1 broken")
	tab.Until("the moment is in the address", `location.search.includes("at=2")`)
	tab.Screenshot("moment")
	tab.Click("#notices button")
	tab.Shows("#counts", "0 broken")
}

// The page gets what it missed when the server comes back.
func TestReconnect(t *testing.T) {
	f := newFixture(t, 30, 6, 0)
	tab := f.open("/services?all=1")
	tab.Expect("net::ERR_CONNECTION_REFUSED")
	tab.Expect("net::ERR_INCOMPLETE_CHUNKED_ENCODING")
	tab.Shows("#live", "live")
	address := f.address
	f.stop()
	tab.Shows("#live", "no connection since")
	if n := count(tab); n != 30 {
		t.Errorf("%d services are shown without a connection", n)
	}
	f.fleet.Trouble = 10
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	f.start(address)
	tab.Shows("#live", "live")
	tab.Shows("#counts", "1 broken")
	tab.Shows("#timeline li", "port-conflict")
}

// Without the token nothing is shown, and the page says what to do.
func TestWithoutToken(t *testing.T) {
	f := newFixture(t, 10, 3, 5)
	tab := browser.Open(t, "http://"+f.address+"/services")
	tab.Expect("401")
	tab.Shows("#notices", "open the address that seamark ui printed")
	if text := tab.Text("body"); strings.Contains(text, "team-") {
		t.Errorf("data is shown: %s", text)
	}
}

// The file that the page saves shows the same later.
func TestSaveAndOpen(t *testing.T) {
	f := newFixture(t, 30, 6, 0)
	tab := f.open("/services")
	f.fleet.Trouble = 10
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	tab.Shows("#counts", "1 broken")
	dir := t.TempDir()
	tab.DownloadTo(dir)
	tab.Click("#save")
	tab.Shows("#announce", "Saved seamark-")
	var file *state.File
	harness.Eventually(t, "the file is written", func() error {
		files, err := filepath.Glob(filepath.Join(dir, "*.ui.gz"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("there are %v: %w", files, err)
		}
		file, err = ui.Open(files[0])
		return err
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ui.Show(ctx, ui.Options{Listener: l, Token: token}, file) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	later := browser.Open(t, fmt.Sprintf("http://%s/services#token=%s", l.Addr(), token))
	later.Shows("#live", "from a file")
	later.Shows("#counts", "1 broken")
	later.Shows("#timeline li", "port-conflict")
	later.Go(fmt.Sprintf("http://%s/service/%s", l.Addr(), generate.ServiceName(0)))
	later.Shows(".finding[data-code=import-missing]", "east-000")
}

// All views keep the rules of accessibility, light and dark, wide and narrow.
func TestAccessible(t *testing.T) {
	f := newFixture(t, 40, 6, 5)
	f.fleet.Problem["north-001"] = "connection refused"
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	views := map[string]string{"services": "/services?all=1", "clusters": "/clusters", "moment": "/services?at=1"}
	views["service"] = "/service/" + generate.ServiceName(0)
	for _, name := range []string{"services", "clusters", "service", "moment"} {
		for _, scheme := range []string{"light", "dark"} {
			for width, label := range map[int64]string{1280: "wide", 390: "phone"} {
				tab := f.open(views[name])
				tab.Scheme(scheme)
				tab.Size(width, 800)
				tab.Shows("#live", "live")
				tab.Accessible(strings.Join([]string{name, scheme, label}, " "))
				tab.Screenshot(strings.Join([]string{name, scheme, label}, "-"))
				if wide := browser.Eval[int64](tab, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s %s is %d pixels wide on %d", name, label, wide, width)
				}
			}
		}
	}
}

// A planted fault is found: the check itself works.
func TestAccessibleFindsFaults(t *testing.T) {
	f := newFixture(t, 5, 3, 0)
	tab := f.open("/services")
	browser.Eval[any](tab, `document.querySelector("#find").removeAttribute("aria-label");
		document.querySelector("#find").placeholder = ""; document.querySelector("#find").removeAttribute("id")`)
	probe := &recorder{TB: t}
	tab.AccessibleFor(probe, "the page with a fault")
	if !probe.failed {
		t.Error("a field without a label is not found")
	}
}

type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

// A hidden tab closes its stream, since a browser opens only six connections to a server. It
// catches up when it is shown again.
func TestHiddenTab(t *testing.T) {
	f := newFixture(t, 30, 6, 0)
	tab := f.open("/services")
	tab.Shows("#live", "live")
	hide := func(hidden bool) {
		browser.Eval[any](tab, fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, get: () => %v});
			document.dispatchEvent(new Event("visibilitychange")); null`, hidden))
	}
	hide(true)
	tab.Shows("#live", "paused")
	f.fleet.Trouble = 10
	f.fleet.Refresh(f.fleet.All()...)
	f.publish()
	hide(false)
	tab.Shows("#live", "live")
	tab.Shows("#counts", "1 broken")
}
