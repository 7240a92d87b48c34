// Package browser opens the page in a real headless Chromium, for tests and measurements.
package browser

import (
	"context"
	_ "embed" // the source of axe-core
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	cd "github.com/chromedp/chromedp"
)

//go:embed axe/axe.min.js
var axe string

// program is the browser that `make setup` installs.
const program = "chromium-headless-shell"

// Launch starts a browser. It ends with stop.
func Launch(flags ...cd.ExecAllocatorOption) (ctx context.Context, stop func(), err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is not installed: run make setup", program)
	}
	options := append(cd.DefaultExecAllocatorOptions[:], cd.ExecPath(path), cd.DisableGPU, cd.WindowSize(1280, 800),
		cd.Flag("disable-component-update", true), cd.Flag("disable-quic", true))
	allocator, free := cd.NewExecAllocator(context.Background(), append(options, flags...)...)
	ctx, cancel := cd.NewContext(allocator)
	stop = func() { cancel(); free() }
	if err := cd.Do(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start the browser: %w", err)
	}
	return ctx, stop, nil
}

var shared = sync.OnceValues(func() (context.Context, error) {
	ctx, _, err := Launch() // it ends with the test binary, which holds its pipe
	return ctx, err
})

// Tab is a tab of the browser. A test fails if its console has an error that was not expected.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	messages []string
	expected []string
}

// timeout is how long a tab waits for what it should show. It is not what is measured.
const timeout = time.Minute

// Open opens an address in a tab of its own, with storage of its own.
func Open(t testing.TB, address string) *Tab {
	t.Helper()
	parent, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return OpenIn(t, parent, address)
}

// OpenIn opens an address in a tab of a browser.
func OpenIn(t testing.TB, parent context.Context, address string) *Tab {
	t.Helper()
	ctx, cancel := cd.NewContext(parent, cd.WithNewBrowserContext())
	t.Cleanup(cancel)
	tab := &Tab{t: t, ctx: ctx}
	if err := cd.Do(ctx); err != nil { // the tab lives as long as the context of its first action
		t.Fatal(err)
	}
	tab.Do(cd.EmulateViewport(1280, 800))
	console := cd.Console(ctx)
	go tab.listen(console)
	t.Cleanup(tab.checkConsole)
	tab.Go(address)
	return tab
}

func (tab *Tab) listen(console func(func(cd.ConsoleMessage, error) bool)) {
	for m, err := range console {
		if err != nil {
			return
		}
		if m.Type == cd.ConsoleError || m.Type == cd.ConsoleException || m.Type == cd.ConsoleWarning {
			tab.mu.Lock()
			tab.messages = append(tab.messages, fmt.Sprintf("%s: %s (%s:%d)", m.Type, m.Text, m.URL, m.Line+1))
			tab.mu.Unlock()
		}
	}
}

// Expect allows messages of the console with a text.
func (tab *Tab) Expect(text string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.expected = append(tab.expected, text)
}

func (tab *Tab) checkConsole() {
	tab.mu.Lock()
	defer tab.mu.Unlock()
messages:
	for _, m := range tab.messages {
		for _, text := range tab.expected {
			if strings.Contains(m, text) {
				continue messages
			}
		}
		tab.t.Errorf("console: %s", m)
	}
}

// Do runs actions.
func (tab *Tab) Do(actions ...cd.Action[cd.Void]) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, timeout)
	defer cancel()
	if err := cd.Do(ctx, actions...); err != nil {
		tab.t.Fatal(err)
	}
}

// Go opens an address.
func (tab *Tab) Go(address string) {
	tab.t.Helper()
	tab.Do(cd.Navigate(address))
}

// Eval returns the value of an expression.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, timeout)
	defer cancel()
	value, err := cd.Run(ctx, cd.Evaluate[T](expression, cd.EvalAwaitPromise))
	if err != nil {
		tab.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// Until waits until an expression is true, and fails with what the page shows.
func (tab *Tab) Until(what, expression string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, timeout)
	defer cancel()
	poll := cd.Poll[bool]("Boolean("+expression+")", cd.WithPollingInterval(20*time.Millisecond), cd.WithPollingTimeout(timeout))
	if _, err := cd.Run(ctx, poll); err != nil {
		tab.t.Fatalf("%s: %v; the page shows:\n%s", what, err, tab.Text("body"))
	}
}

// Ready waits until the page shows a state.
func (tab *Tab) Ready() {
	tab.t.Helper()
	tab.Until("the page is ready", `document.documentElement.dataset.ready === "true"`)
}

// Shows waits until an element has a text.
func (tab *Tab) Shows(selector, text string) {
	tab.t.Helper()
	tab.Until(fmt.Sprintf("%s shows %q", selector, text),
		fmt.Sprintf(`[...document.querySelectorAll(%s)].some((el) => el.checkVisibility() && el.textContent.includes(%s))`,
			quote(selector), quote(text)))
}

// Text returns the text of an element.
func (tab *Tab) Text(selector string) string {
	return Eval[string](tab, fmt.Sprintf(`document.querySelector(%s)?.innerText || ""`, quote(selector)))
}

// Click clicks an element, as a user does.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	tab.Do(cd.Click(cd.CSS(selector)))
}

// Keys types keys into the element with the focus.
func (tab *Tab) Keys(keys string) {
	tab.t.Helper()
	tab.Do(cd.KeyEvent(keys))
}

// Location returns the path and query of the address.
func (tab *Tab) Location() string {
	return Eval[string](tab, "location.pathname + location.search + location.hash")
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(quoted)
}

// Scheme makes the tab light or dark.
func (tab *Tab) Scheme(scheme string) {
	tab.t.Helper()
	tab.Do(func(ctx context.Context, _ *cd.Target) (cd.Void, error) {
		_, err := cd.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return cd.Void{}, err
	})
}

// Size sets the size of the tab.
func (tab *Tab) Size(width, height int64) {
	tab.t.Helper()
	tab.Do(cd.EmulateViewport(width, height))
}

// Accessible fails the test for each rule of axe-core that the page violates.
func (tab *Tab) Accessible(what string) {
	tab.t.Helper()
	tab.AccessibleFor(tab.t, what)
}

// AccessibleFor is Accessible for another test than that of the tab.
func (tab *Tab) AccessibleFor(t testing.TB, what string) {
	t.Helper()
	Eval[any](tab, axe+"; null")
	found := Eval[string](tab, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) =>
		v.id + ": " + v.help + "\n" + v.nodes.map((n) => "  " + n.html + "\n  " + n.failureSummary).join("\n")).join("\n"))`)
	if found != "" {
		t.Errorf("%s violates rules of accessibility:\n%s", what, found)
	}
}

// DownloadTo makes the tab write downloads into a folder.
func (tab *Tab) DownloadTo(dir string) {
	tab.t.Helper()
	tab.Do(func(ctx context.Context, _ *cd.Target) (cd.Void, error) {
		_, err := cd.CallBrowser(ctx, cdbrowser.SetDownloadBehavior, cdbrowser.SetDownloadBehaviorParams{
			Behavior: cdbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, BrowserContextID: cd.FromContext(ctx).BrowserContextID,
		})
		return cd.Void{}, err
	})
}

// Screenshot keeps a picture of the page in the folder that SEAMARK_SCREENSHOTS names, or in one
// for temporary files.
func (tab *Tab) Screenshot(name string) {
	tab.t.Helper()
	dir := os.Getenv("SEAMARK_SCREENSHOTS")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "seamark-screenshots")
	}
	ctx, cancel := context.WithTimeout(tab.ctx, timeout)
	defer cancel()
	picture, err := cd.Run(ctx, cd.CaptureScreenshot())
	if err != nil {
		tab.t.Fatal(err)
	}
	path := filepath.Join(dir, name+".png")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tab.t.Fatal(err)
	}
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		tab.t.Fatal(err)
	}
	tab.t.Logf("screenshot: %s", path)
}
