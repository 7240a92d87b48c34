package withdrawal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestShareIsMost(t *testing.T) {
	for _, test := range []struct {
		share Share
		most  bool
	}{
		{Share{0, 0}, false}, {Share{2, 2}, false}, {Share{3, 3}, true}, {Share{3, 5}, true}, {Share{3, 6}, false}, {Share{4, 6}, true},
		{Share{50, 100}, false}, {Share{51, 100}, true},
	} {
		if got := test.share.IsMost(); got != test.most {
			t.Errorf("%+v: %t", test.share, got)
		}
	}
}

func TestRemaining(t *testing.T) {
	now := time.Now()
	for since, want := range map[time.Duration]time.Duration{
		0: 10 * time.Minute, -4 * time.Minute: 6 * time.Minute, -10 * time.Minute: 0, -11 * time.Minute: -time.Minute,
		time.Hour: 10 * time.Minute, // the clock was set back
	} {
		if got := Remaining(10*time.Minute, now.Add(since), now); got != want {
			t.Errorf("since %v: %v, want %v", since, got, want)
		}
	}
}

func TestReadingIsSharedUntilItIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, failure := 0, error(nil)
		r := Reading[int]{Read: func(context.Context) (int, error) { reads++; return reads, failure }}
		want := func(after time.Time, value int) {
			t.Helper()
			if got, err := r.After(t.Context(), after); got != value || !errors.Is(err, failure) {
				t.Errorf("read %d (%v), want %d", got, err, value)
			}
		}
		start := time.Now()
		time.Sleep(time.Second)
		want(start, 1)
		want(start, 1)
		want(time.Now(), 2) // the first reading did not begin after that
		time.Sleep(time.Second)
		failure = errors.New("the server is away")
		want(time.Now(), 3)
		failure = nil
		want(start, 2) // a failed reading is not kept
	})
}

func TestDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Deletions
		web := types.NamespacedName{Namespace: "shop", Name: "web"}
		obj := &corev1.Service{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}
		want := func(what string, part string, seen bool) {
			t.Helper()
			if _, got := d.Of(web, part); got != seen {
				t.Errorf("%s: %s was seen to be deleted: %t", what, part, got)
			}
		}
		d.Changed(web, "a", obj, false)
		want("added", "a", false)
		d.Changed(web, "a", obj, true)
		want("deleted", "a", true)
		want("deleted", "b", false)
		time.Sleep(time.Second)
		read := time.Now()
		time.Sleep(time.Second)
		d.Changed(web, "b", obj, true)
		d.Forget(web, read) // of a reconcile that had read the service before b was deleted
		want("forgotten", "a", false)
		want("deleted later", "b", true)
		d.Changed(web, "b", obj, false)
		want("created again", "b", false)
		if len(d.seen) > 0 {
			t.Errorf("left: %v", d.seen)
		}
	})
}

func TestServices(t *testing.T) {
	var s Services
	web, db := types.NamespacedName{Name: "web"}, types.NamespacedName{Name: "db"}
	s.Set(web, false)
	if !s.Set(web, true) || s.Set(web, true) || s.Set(db, true) || s.Len() != 2 {
		t.Error("not only the first of a set is the first")
	}
	s.Set(web, false)
	s.Set(db, false)
	if s.Len() != 0 || !s.Set(db, true) {
		t.Error("an empty set is not empty")
	}
}
