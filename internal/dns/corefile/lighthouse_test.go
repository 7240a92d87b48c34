package corefile

import (
	"errors"
	"strings"
	"testing"
)

const (
	lighthouseBlock = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\nclusterset.local:53 {\n    forward . 10.96.7.7\n}\n#lighthouse-end\n"
	ownServer       = ".:53 {\n    errors\n    kubernetes cluster.local\n    reload\n}\n"
)

var seamarkForward = Forward{Zone: "clusterset.local", Servers: []string{"10.96.0.53"}}

func TestReplaceAndRestoreLighthouse(t *testing.T) {
	block, err := Block(seamarkForward)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, before, after, back string }{
		{"as the operator leaves it", lighthouseBlock + ownServer, block + ownServer, lighthouseBlock + ownServer},
		{"with comments around", "# mine\n" + lighthouseBlock + "# also mine\n" + ownServer,
			"# mine\n" + block + "# also mine\n" + ownServer, "# mine\n" + lighthouseBlock + "# also mine\n" + ownServer},
		{"without a last line end", lighthouseBlock + strings.TrimSuffix(ownServer, "\n"),
			block + strings.TrimSuffix(ownServer, "\n"), lighthouseBlock + strings.TrimSuffix(ownServer, "\n")},
		{"replaced already", block + ownServer, block + ownServer, lighthouseBlock + ownServer},
		{"added again by the operator", lighthouseBlock + block + ownServer, block + ownServer, lighthouseBlock + ownServer},
		{"without either", ownServer, ownServer + block, ownServer + lighthouseBlock},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ReplaceLighthouse(test.before, seamarkForward)
			if err != nil || got != test.after {
				t.Fatalf("replaced: %v\n%s\nwant\n%s", err, got, test.after)
			}
			if again, err := ReplaceLighthouse(got, seamarkForward); err != nil || again != got {
				t.Errorf("replaced twice: %v\n%s", err, again)
			}
			back, err := RestoreLighthouse(got, "10.96.7.7")
			if err != nil || back != test.back {
				t.Errorf("restored: %v\n%s\nwant\n%s", err, back, test.back)
			}
			if again, err := RestoreLighthouse(back, "10.96.7.7"); err != nil || again != back {
				t.Errorf("restored twice: %v\n%s", err, again)
			}
		})
	}
}

func TestLighthouseBlocksThatMustBeRepaired(t *testing.T) {
	for _, text := range []string{
		"#lighthouse-start\n" + ownServer, ownServer + "#lighthouse-end\n", lighthouseBlock + lighthouseBlock + ownServer,
	} {
		if _, err := ReplaceLighthouse(text, seamarkForward); !errors.Is(err, ErrOpenLighthouseBlock) {
			t.Errorf("got %v for\n%s", err, text)
		}
	}
	taken := lighthouseBlock + "clusterset.local {\n    forward . 1.1.1.1\n}\n" + ownServer
	if _, err := ReplaceLighthouse(taken, seamarkForward); !errors.Is(err, ErrZoneTaken) {
		t.Errorf("got %v for a second server block of the zone, want %v", err, ErrZoneTaken)
	}
	if _, err := RestoreLighthouse(ownServer, ""); err == nil {
		t.Error("a block without a server was restored")
	}
}
