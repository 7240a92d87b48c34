package kubeparts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const helperEnv = "SEAMARK_KUBEPARTS_HELPER"

// TestMain builds without an end when helperEnv is set: a test runs this binary as another process
// and kills it.
func TestMain(m *testing.M) {
	if where := os.Getenv(helperEnv); where != "" {
		cache, dir, _ := strings.Cut(where, "|")
		p := tinyPartIn(dir)
		p.plan = planEndless
		_, err := ensure(context.Background(), os.Stderr, cache, p)
		panic(err) // ensure returned although the build does not end
	}
	os.Exit(m.Run())
}

// tinyPart returns a part that the Go tool builds quickly. Its replace directive makes a module
// proxy unnecessary.
func tinyPart(t *testing.T) part {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/tiny // note\n\ngo 1.26\n\nrequire example.com/dep v1.2.3\n\n"+
		"replace example.com/dep => ./dep\n")
	write(t, filepath.Join(dir, "go.sum"), "example.com/other v0.0.1 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nimport _ \"example.com/dep\"\n\nfunc main() { print(\"hello\") }\n")
	write(t, filepath.Join(dir, "dep", "go.mod"), "module example.com/dep\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "dep", "dep.go"), "package dep\n")
	// A program that `go run` starts in place of a long build: it writes an incomplete result and runs
	// until the builder has ended.
	write(t, filepath.Join(dir, "endless", "main.go"), `package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	builder, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[1], []byte("half"), 0o755); err != nil {
		panic(err)
	}
	for syscall.Kill(builder, 0) == nil {
		time.Sleep(10 * time.Millisecond)
	}
}
`)
	return tinyPartIn(dir)
}

func tinyPartIn(dir string) part {
	return part{name: "tiny", dir: dir, versionOf: "example.com/dep", plan: planTiny}
}

func planTiny(_ context.Context, _ part, _, out string) ([]step, error) {
	return []step{{"dep", []string{"build", "example.com/dep"}}, {"link", []string{"build", "-o", filepath.Join(out, "tiny"), "."}}}, nil
}

func planEndless(_ context.Context, _ part, _, out string) ([]step, error) {
	return []step{{"endless", []string{"run", "./endless", filepath.Join(out, "tiny"), strconv.Itoa(os.Getpid())}}}, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestBuiltOnceThenFoundInTheCache(t *testing.T) {
	p, cache := tinyPart(t), t.TempDir()
	var progress bytes.Buffer
	dir, err := ensure(t.Context(), &progress, cache, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tiny v1.2.3 is not in the cache", "tiny: [1/2] dep … ", "tiny: [2/2] link … ", "built in"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, &progress)
		}
	}
	if out, err := exec.Command(filepath.Join(dir, "tiny")).CombinedOutput(); string(out) != "hello" || err != nil {
		t.Errorf("the result says %q, %v", out, err)
	}
	progress.Reset()
	if again, err := ensure(t.Context(), &progress, cache, p); again != dir || err != nil || progress.Len() > 0 {
		t.Errorf("second time: got %s, %v, want %s; progress %q", again, err, dir, &progress)
	}
}

func TestParallelCallersBuildOnce(t *testing.T) {
	p, cache := tinyPart(t), t.TempDir()
	const callers = 4
	var progress [callers]bytes.Buffer
	var errs [callers]error
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() { _, errs[i] = ensure(t.Context(), &progress[i], cache, p) })
	}
	wait.Wait()
	built := 0
	for i := range callers {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		text := progress[i].String()
		built += strings.Count(text, "built in")
		if text != "" && !strings.Contains(text, "built in") && !strings.Contains(text, "waiting for another process") {
			t.Errorf("a caller that did not build prints %q, want that it waits", text)
		}
	}
	if built != 1 {
		t.Errorf("built %d times, want once", built)
	}
}

func TestAKilledBuildLeavesNoResultAndNoLock(t *testing.T) {
	p, cache := tinyPart(t), t.TempDir()
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), helperEnv+"="+cache+"|"+p.dir)
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(cache, "tiny", "*.partial-*", "tiny")
	for start := time.Now(); len(matches(t, partial)) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			helper.Process.Kill()
			t.Fatalf("the other process does not build: %v", helper.Wait())
		}
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	helper.Wait()
	for start := time.Now(); mentioned(t, cache); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("a process of the killed build still runs")
		}
	}
	_, key, err := p.identify()
	if err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(cache, "tiny", key)) {
		t.Fatal("an incomplete build is in the cache")
	}
	dir, err := ensure(t.Context(), &bytes.Buffer{}, cache, p)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(dir, "tiny")).CombinedOutput(); string(out) != "hello" || err != nil {
		t.Errorf("the result says %q, %v", out, err)
	}
	if left := matches(t, filepath.Join(cache, "tiny", "*.partial-*")); len(left) > 0 {
		t.Errorf("the killed build left %v", left)
	}
}

func TestACancelledBuildStopsAndCleansUp(t *testing.T) {
	p, cache := tinyPart(t), t.TempDir()
	p.plan = planEndless
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := ensure(ctx, &bytes.Buffer{}, cache, p)
		done <- err
	}()
	for start := time.Now(); len(matches(t, filepath.Join(cache, "tiny", "*.partial-*", "tiny"))) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("the build does not start")
		}
	}
	cause := errors.New("cancelled by the test")
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if left := matches(t, filepath.Join(cache, "tiny", "*.partial-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), &bytes.Buffer{}, path, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var progress bytes.Buffer
	if _, err := lock(ctx, &progress, path, "tiny"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error of the context", err)
	}
	if want := "tiny: waiting for another process"; !strings.Contains(progress.String(), want) {
		t.Errorf("printed %q, want %q", &progress, want)
	}
	unlock()
	unlock, err = lock(t.Context(), &bytes.Buffer{}, path, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestAFailedBuildShowsTheCompilersOutput(t *testing.T) {
	p, cache := tinyPart(t), t.TempDir()
	write(t, filepath.Join(p.dir, "main.go"), "package main\n\nfunc main() { undefinedThing() }\n")
	_, err := ensure(t.Context(), &bytes.Buffer{}, cache, p)
	if err == nil || !strings.Contains(err.Error(), "build link of tiny") || !strings.Contains(err.Error(), "undefinedThing") {
		t.Errorf("got %v", err)
	}
	if left := matches(t, filepath.Join(cache, "tiny", "*.partial-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(CacheEnv, "/somewhere/else")
	if got, err := CacheDir(); got != "/somewhere/else" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	t.Setenv(CacheEnv, "")
	t.Setenv("HOME", "/home/someone")
	t.Setenv("XDG_CACHE_HOME", "")
	if got, err := CacheDir(); !strings.HasSuffix(got, "/seamark") || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mentioned reports whether a running process has the text in its command line.
func mentioned(t *testing.T, text string) bool {
	t.Helper()
	for _, path := range matches(t, "/proc/[0-9]*/cmdline") {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
			return true
		}
	}
	return false
}
