package harness

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// TimeoutFactorEnv names the environment variable that multiplies the timeout of Eventually, for
// slow or busy machines.
const TimeoutFactorEnv = "SEAMARK_TEST_PATIENCE"

const (
	pollInterval   = 20 * time.Millisecond
	maxInterval    = 250 * time.Millisecond
	defaultTimeout = 30 * time.Second
)

// Eventually calls check until it returns nil: first every 20 ms, then less and less often, down to
// four times a second. Most checks send requests to an API server, and frequent ones would slow
// down what they wait for. After 30 seconds (times SEAMARK_TEST_PATIENCE) it fails the test with
// what was expected and the last error. A check that may hang needs a timeout of its own.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	EventuallyWithin(t, defaultTimeout, what, check)
}

// EventuallyWithin is Eventually with another timeout, for parts of others that take their time.
func EventuallyWithin(t testing.TB, timeout time.Duration, what string, check func() error) {
	t.Helper()
	factor, err := patience(os.Getenv(TimeoutFactorEnv))
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Duration(factor * float64(timeout))
	started := time.Now()
	for interval := pollInterval; ; interval = min(interval*5/4, maxInterval) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(started) > limit {
			t.Fatalf("%s: not the case after %s: %v", what, limit, err)
		}
		time.Sleep(interval)
	}
}

// Consistently calls check every 20 ms for the time d and fails the test at the first error.
func Consistently(t testing.TB, what string, d time.Duration, check func() error) {
	t.Helper()
	for started := time.Now(); ; time.Sleep(pollInterval) {
		if err := check(); err != nil {
			t.Fatalf("%s: no longer the case after %s: %v", what, time.Since(started).Round(time.Millisecond), err)
		}
		if time.Since(started) >= d {
			return
		}
	}
}

// Never calls check every 20 ms for the time d and fails the test as soon as check returns nil.
func Never(t testing.TB, what string, d time.Duration, check func() error) {
	t.Helper()
	for started := time.Now(); ; time.Sleep(pollInterval) {
		if check() == nil {
			t.Fatalf("%s: happened after %s", what, time.Since(started).Round(time.Millisecond))
		}
		if time.Since(started) >= d {
			return
		}
	}
}

// patience returns by what timeouts are multiplied; an empty text means by one.
func patience(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || factor <= 0 {
		return 0, fmt.Errorf("%s=%q: want a number above zero, such as 2 or 0.5", TimeoutFactorEnv, text)
	}
	return factor, nil
}
