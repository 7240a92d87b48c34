package version

import "testing"

func TestVersionsOfModules(t *testing.T) {
	for module, want := range map[string]string{
		"v0.1.0":                               "v0.1.0",
		"v0.2.0-rc.1":                          "v0.2.0-rc.1",
		"v0.2.0-one-two":                       "v0.2.0-one-two",
		"":                                     "dev",
		"(devel)":                              "dev",
		"v0.1.0+dirty":                         "dev",
		"v0.0.0-20261117095555-3976e20b3d1f":   "dev",
		"v0.1.1-0.20261117095555-3976e20b3d1f": "dev",
	} {
		if got := tagOf(module); got != want {
			t.Errorf("%q: got %s, want %s", module, got, want)
		}
	}
}

// TestVersionOfTests checks that a build without a version is called dev, and that the linker
// decides otherwise.
func TestVersionOfTests(t *testing.T) {
	if got := String(); got != dev {
		t.Errorf("got %q", got)
	}
	version = "v9.8.7"
	defer func() { version = "" }()
	if got := String(); got != "v9.8.7" {
		t.Errorf("got %q although the linker has set v9.8.7", got)
	}
}
