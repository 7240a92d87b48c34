package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/seamark-dev/seamark/internal/ui/state"
)

// savedPage writes a file as the page saves it.
func savedPage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.ui.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	saved := &state.File{History: state.NewHistory(&state.Snapshot{Seq: 1, ClusterSet: "prod"})}
	if err := saved.Write(file, strings.TrimSpace); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func uiCommand(ctx context.Context, out io.Writer, args ...string) error {
	cmd := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out})
	cmd.SetArgs(append([]string{"ui"}, args...))
	return cmd.ExecuteContext(ctx)
}

// The command prints an address at which the page is served, and ends when the user interrupts it.
func TestUI(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- uiCommand(ctx, writer, savedPage(t))
		_ = writer.Close() // a pipe can always be closed
	}()
	lines := bufio.NewScanner(reader)
	lines.Scan()
	address, found := strings.CutPrefix(lines.Text(), "The page is at ")
	page, token, _ := strings.Cut(address, "/services#token=")
	if !found || !strings.HasPrefix(page, "http://127.0.0.1:") || len(token) < 20 {
		t.Fatalf("printed: %s", lines.Text())
	}
	lines.Scan()
	if lines.Text() != "Only this machine can open it, with this address. End with Ctrl-C." {
		t.Errorf("printed: %s", lines.Text())
	}
	if status, body := request(t, page+"/api/state", token); status != http.StatusOK || !strings.Contains(body, `"clusterSet":"prod"`) {
		t.Errorf("with the token: %d %s", status, body)
	}
	if status, body := request(t, page+"/api/state", ""); status != http.StatusUnauthorized || strings.Contains(body, "prod") {
		t.Errorf("without the token: %d %s", status, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

func request(t *testing.T, address, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// cause returns what the operating system says: each has words of its own.
func cause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// What cannot be shown is an error that says what to do.
func TestUIErrors(t *testing.T) {
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, noFile := os.Open("/nothing.ui.gz")
	_, noPort := net.Listen("tcp", taken.Addr().String())
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such file":  {[]string{"/nothing.ui.gz"}, "open the file: " + cause(noFile)},
		"another file":  {[]string{text}, "notes.txt cannot be shown: it is no file that the page saved, and no archive of seamark gather"},
		"port is taken": {[]string{savedPage(t), "--port", port}, cause(noPort) + " (choose another --port)"},
		"two files":     {[]string{text, text}, "accepts at most 1 arg(s), received 2"},
	} {
		if err := uiCommand(t.Context(), io.Discard, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
