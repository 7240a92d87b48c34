package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A thousand members that start together renew their leases at moments that are spread over the
// whole interval.
func TestHeartbeatsOfMembersAreSpread(t *testing.T) {
	const members, parts = 1000, 10
	var renewals [parts + 1]int
	for i := range members {
		h := &Heartbeat{ClusterID: fmt.Sprintf("cluster-%d", i), RenewEvery: 10 * time.Second}
		phase := h.phase() // of a replica that does not renew yet, so of half an interval
		if phase <= 0 || phase > h.RenewEvery/2+h.RenewEvery/100 {
			t.Fatalf("%s begins after %v", h.ClusterID, phase)
		}
		renewals[phase*parts/(h.RenewEvery/2)]++
	}
	for i, n := range renewals[:parts] {
		if n < members/parts/2 || n > members/parts*2 {
			t.Errorf("%d of %d members renew in part %d of %d", n, members, i+1, parts)
		}
	}
}

// A watch that is behind is started over after the duration of a lease, then after twice as long
// each time, and after the duration of a lease again once it has delivered a renewal.
func TestWatchIsStartedOverLessAndLessOften(t *testing.T) {
	var w watchedRenewals
	now := time.Now()
	w.stuck(false, true, now, time.Second)
	overAfter := func() (seconds int) {
		for seconds = 1; ; seconds++ {
			now = now.Add(time.Second)
			if w.stuck(true, true, now, time.Second) {
				return seconds
			}
		}
	}
	for _, want := range []int{2, 3, 5, 9} { // the first whole second after 1, 2, 4 and 8
		if got := overAfter(); got != want {
			t.Errorf("it was started over after %d s, want %d", got, want)
		}
	}
	w.stuck(false, true, now, time.Second)
	if got := overAfter(); got != 2 {
		t.Errorf("after a renewal arrived it was started over after %d s", got)
	}
	for range 60 {
		if now = now.Add(time.Second); w.stuck(true, false, now, time.Second) {
			t.Fatal("a watch that was not open yet was started over")
		}
	}
	if got := overAfter(); got != 3 {
		t.Errorf("a watch that was opened late was started over after %d s", got)
	}
}

// A leader whose renewal failed does not try more often than one that renews.
func TestHeartbeatDoesNotHurryAfterAnError(t *testing.T) {
	h := &Heartbeat{RenewEvery: 4 * time.Second}
	if got := h.interval(); got != 2*time.Second {
		t.Errorf("while another process renews the interval is %s", got)
	}
	h.recordOutcome(false, context.DeadlineExceeded)
	if got := h.interval(); got != 4*time.Second {
		t.Errorf("after an error the interval is %s", got)
	}
}

// After a renewal that the broker did not answer, the next one writes the lease without reading it.
// After any other error it must be read.
func TestLeaseIsReadAgainOnlyAfterAnAnswer(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("renew lease east: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), true},
		{fmt.Errorf("renew lease east: %w", apierrors.NewTooManyRequests("busy", 1)), true},
		{apierrors.NewServerTimeout(leases, "update", 1), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewConflict(leases, "east", errors.New("changed")), false},
		{apierrors.NewNotFound(leases, "east"), false},
		{apierrors.NewForbidden(leases, "east", errors.New("removed")), false},
		{apierrors.NewUnauthorized("expired"), false},
		{&idTakenError{id: "east", holder: "other"}, false},
	} {
		if got := unanswered(test.err); got != test.want {
			t.Errorf("%v: unanswered is %t", test.err, got)
		}
	}
}

// A member is demoted if another one lists it, not if only it itself does.
func TestListedByOthers(t *testing.T) {
	l := NewLiveness("east")
	now := time.Now()
	for _, step := range []struct {
		member  string
		demotes []string
		want    bool
	}{
		{"east", []string{"east", "west"}, false},
		{"west", []string{"north"}, false},
		{"north", []string{"east"}, true},
		{"north", nil, false},
	} {
		l.ObserveDemoted(step.member, step.demotes, now)
		if got := l.ListedByOthers(); got != step.want {
			t.Errorf("after %s demotes %v: %t", step.member, step.demotes, got)
		}
	}
}
