package text

import (
	"strings"
	"testing"
)

func TestShorten(t *testing.T) {
	if got := Shorten("one two three", 9); got != "one two…" {
		t.Errorf("%q", got)
	}
	if got := Shorten(strings.Repeat("x", 20), 9); got != strings.Repeat("x", 9)+"…" {
		t.Errorf("%q", got)
	}
	if got := Shorten("a\nb", 9); got != "a b" {
		t.Errorf("%q", got)
	}
}
