package corefile_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

func TestForwards(t *testing.T) {
	for name, c := range map[string]struct {
		text, zone string
		servers    []string
		ok         bool
	}{
		"no rule":             {usual, "clusterset.local", nil, false},
		"empty":               {"", "clusterset.local", nil, false},
		"added by join":       {usual + block, "clusterset.local", []string{"10.96.0.53"}, true},
		"another zone":        {usual + block, "mesh.example", nil, false},
		"spelled differently": {"ClusterSet.LOCAL. {\n forward . 10.96.0.53\n}\n", "clusterset.local.", []string{"10.96.0.53"}, true},
		"in one line":         {"clusterset.local { forward . 10.96.0.53 }\n", "clusterset.local", []string{"10.96.0.53"}, true},
		"scheme, port, IPv6": {
			"clusterset.local {\n forward . dns://10.96.0.53:53 tls://10.96.0.54 [fd00::53]:5353 fd00:0::1 /etc/resolv.conf\n}\n",
			"clusterset.local", []string{"10.96.0.53", "10.96.0.54", "fd00::53", "fd00::1", "/etc/resolv.conf"}, true},
		"a directive in the root's block": {
			".:53 {\n  forward clusterset.local 10.96.0.53 {\n    max_fails 2\n  }\n  forward . /etc/resolv.conf\n}\n",
			"clusterset.local", []string{"10.96.0.53"}, true},
		"a parent's block": {"local {\n forward . 10.96.0.53\n}\n", "clusterset.local", []string{"10.96.0.53"}, true},
		"the more specific one": {"local {\n forward . 10.0.0.1\n}\nclusterset.local {\n forward . 10.96.0.53\n}\n",
			"clusterset.local", []string{"10.96.0.53"}, true},
		"only its end is equal": {"set.local {\n forward . 10.0.0.1\n}\n", "clusterset.local", nil, false},
		"of a child":            {"svc.clusterset.local {\n forward . 10.0.0.1\n}\n", "clusterset.local", nil, false},
		"without a forward":     {"clusterset.local {\n  log\n}\n", "clusterset.local", nil, true},
		"in a comment":          {"# clusterset.local {\n.:53 {\n  log # forward clusterset.local 10.0.0.1\n}\n", "clusterset.local", nil, false},
		"on another port":       {"clusterset.local:5353 {\n forward . 10.0.0.1\n}\n", "clusterset.local", nil, false},
		"keys over many lines": {"a.example,\nclusterset.local\n{\n forward . 10.96.0.53\n}\n",
			"clusterset.local", []string{"10.96.0.53"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if servers, ok := corefile.Forwards(c.text, c.zone); !slices.Equal(servers, c.servers) || ok != c.ok {
				t.Errorf("got %q, %v; want %q, %v", servers, ok, c.servers, c.ok)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	const multicluster = ".:53 {\n    kubernetes cluster.local mesh.example {\n        multicluster mesh.example\n    }\n}\n"
	for name, c := range map[string]struct {
		text, zone string
		want       bool
	}{
		"kubeadm's":                      {usual, "clusterset.local", false},
		"forwards":                       {usual + block, "clusterset.local", false},
		"the plugin clusterset":          {usual + "clusterset.local {\n  clusterset\n}\n", "clusterset.local", true},
		"with its zones":                 {".:53 {\n  clusterset clusterset.local mesh.example {\n    ttl 5\n  }\n}\n", "mesh.example", true},
		"with other zones":               {".:53 {\n  clusterset clusterset.local\n}\n", "mesh.example", false},
		"CoreDNS's kubernetes":           {multicluster, "mesh.example", true},
		"CoreDNS's kubernetes, not ours": {multicluster, "clusterset.local", false},
		"the word elsewhere":             {".:53 {\n  log clusterset\n}\n", "clusterset.local", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := corefile.Answers(c.text, c.zone); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// What Add adds is found again.
func TestForwardsFindsWhatWasAdded(t *testing.T) {
	added, err := corefile.Add(usual, corefile.Forward{Zone: "mesh.example", Servers: []string{"10.96.0.53"}})
	if err != nil {
		t.Fatal(err)
	}
	if servers, ok := corefile.Forwards(added, "mesh.example"); !ok || !slices.Equal(servers, []string{"10.96.0.53"}) {
		t.Fatalf("got %q, %v", servers, ok)
	}
}

// Text with braces anywhere is read without a panic.
func TestForwardsReadsAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"{", "}", "\n", ".:53", "forward", "clusterset", "#", "kubernetes", "multicluster", "a.example"})
		text := strings.Join(rapid.SliceOf(word).Draw(t, "words"), " ")
		corefile.Forwards(text, objects.DefaultZone)
		corefile.Answers(text, objects.DefaultZone)
	})
}
