package main

import "testing"

func TestUnknownSelectionsAreRefused(t *testing.T) {
	for list, want := range map[string]int{"": len(sections), "usable": 2, "idle,usable": 3} {
		if got, err := selectSections(list, sections); err != nil || len(got) != want {
			t.Errorf("-only %q: %d sections, %v; want %d", list, len(got), err, want)
		}
	}
	if _, err := selectSections("two", sections); err == nil {
		t.Error("-only two was accepted")
	}
	if planes, err := selectPlanes("both"); err != nil || len(planes) != 2 {
		t.Errorf("both: %v, %v", planes, err)
	}
	if _, err := selectPlanes("none"); err == nil {
		t.Error("-data-plane none was accepted")
	}
}
