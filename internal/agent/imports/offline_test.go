package imports

import (
	"testing"
	"testing/synctest"
	"time"
)

// Imports whose records disappeared stay until the broker has been heard for a while.
func TestLostRecordsAreWaitedForWhileTheBrokerIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := true
		lost := NewLost(func() bool { return live })
		want := func(left time.Duration) {
			t.Helper()
			if got := lost.Remaining(web); got != left {
				t.Errorf("the import stays for %s, want %s", got, left)
			}
		}
		want(0)
		lost.Note(web)
		time.Sleep(20 * time.Second)
		want(lostDelay - 20*time.Second)
		live = false
		time.Sleep(time.Hour)
		want(lostDelay)
		live = true
		time.Sleep(lostDelay - time.Second)
		want(time.Second)
		time.Sleep(time.Second)
		want(0)
	})
}
