package member

import (
	"testing"
	"time"
)

// A turn knows how often in a row the server answered: silence begins that anew.
func TestTurnsCountAnswers(t *testing.T) {
	turns := newTurns()
	var seen []failures
	delay := func(f failures) time.Duration {
		seen = append(seen, f)
		return 0
	}
	for _, o := range []outcome{noAnswer, refused, refused, noAnswer, refused, succeeded, refused} {
		if err := turns.begin(t.Context(), delay); err != nil {
			t.Fatal(err)
		}
		turns.end(o, delay)
	}
	want := []failures{{}, {1, 0}, {2, 1}, {3, 2}, {4, 0}, {5, 1}, {}, {1, 1}}
	if len(seen) != len(want) {
		t.Fatalf("got %+v, want %+v", seen, want)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("delay %d after %+v, want %+v", i, seen[i], want[i])
		}
	}
}
