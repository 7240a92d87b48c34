package harness

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// recorder is a testing.TB that records a failure instead of failing.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// failureOf runs a function as a test and returns its failure message.
func failureOf(f func(testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failure
}

var errNotYet = errors.New("not yet")

func TestEventually(t *testing.T) {
	calls := 0
	third := func() error {
		if calls++; calls < 3 {
			return errNotYet
		}
		return nil
	}
	if got := failureOf(func(t testing.TB) { Eventually(t, "third time", third) }); got != "" || calls != 3 {
		t.Errorf("got %q after %d calls", got, calls)
	}
	t.Setenv(TimeoutFactorEnv, "0.002")
	got := failureOf(func(t testing.TB) { Eventually(t, "it rains", func() error { return errNotYet }) })
	if got != "it rains: not the case after 60ms: not yet" {
		t.Errorf("got %q", got)
	}
	t.Setenv(TimeoutFactorEnv, "much")
	if got := failureOf(func(t testing.TB) { Eventually(t, "it rains", third) }); !strings.Contains(got, "want a number above zero") {
		t.Errorf("got %q", got)
	}
}

func TestConsistentlyAndNever(t *testing.T) {
	const d = 60 * time.Millisecond
	good, bad := func() error { return nil }, func() error { return errNotYet }
	for name, tc := range map[string]struct {
		got, want string
	}{
		"consistently":     {failureOf(func(t testing.TB) { Consistently(t, "x", d, good) }), ""},
		"not consistently": {failureOf(func(t testing.TB) { Consistently(t, "x", d, bad) }), "no longer the case"},
		"never":            {failureOf(func(t testing.TB) { Never(t, "x", d, bad) }), ""},
		"not never":        {failureOf(func(t testing.TB) { Never(t, "x", d, good) }), "happened"},
	} {
		if (tc.want == "") != (tc.got == "") || !strings.Contains(tc.got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, tc.got, tc.want)
		}
	}
}

func TestNamespaceNames(t *testing.T) {
	for test, want := range map[string]string{
		"TestExport":                     "export-",
		"TestExport/Headless_Service#2":  "export-headless-service-2-",
		"Test" + strings.Repeat("x", 99): strings.Repeat("x", 30) + "-",
		"Test":                           "",
	} {
		name := namespaceName(test)
		if !strings.HasPrefix(name, want) || len(name) != len(want)+6 {
			t.Errorf("%s: got %s, want %s and six digits", test, name, want)
		}
	}
}
