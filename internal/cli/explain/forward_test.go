package explain

import (
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
)

func TestForwarding(t *testing.T) {
	const plain = ".:53 {\n    kubernetes cluster.local\n}\n"
	const multicluster = ".:53 {\n    kubernetes cluster.local clusterset.local {\n        multicluster clusterset.local\n    }\n}\n"
	added, err := corefile.Add(plain, corefile.Forward{Servers: []string{"10.96.0.53"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text      string
		addresses []string
		says      string // empty when nothing is wrong
	}{
		"added by join":     {added, []string{"10.96.0.53"}, ""},
		"by hand":           {plain + "clusterset.local:53 {\n    forward . 10.96.0.53\n}\n", []string{"10.96.0.53", "fd00::53"}, ""},
		"our own plugin":    {plain + "clusterset.local:53 {\n    clusterset\n}\n", nil, ""},
		"CoreDNS's own":     {multicluster, nil, ""},
		"not at all":        {plain, []string{"10.96.0.53"}, "does not forward clusterset.local"},
		"no Service":        {added, nil, "no Service seamark-dns"},
		"to an old address": {added, []string{"10.96.0.99"}, "is forwarded to 10.96.0.53, not to seamark-dns (10.96.0.99)"},
		"to no server":      {plain + "clusterset.local:53 {\n    log\n}\n", []string{"10.96.0.53"}, "is forwarded to no server"},
		"only a comment":    {plain + "# clusterset.local goes to 10.96.0.53\n", []string{"10.96.0.53"}, "does not forward clusterset.local"},
		"a longer address":  {added, []string{"10.96.0.5"}, "not to seamark-dns (10.96.0.5)"},
		"damaged":           {strings.Replace(added, "# END seamark", "", 1), []string{"10.96.0.53"}, "damaged"},
	} {
		problem, fix := Forwarding(test.text, "clusterset.local", test.addresses)
		if (problem == "") != (test.says == "") || !strings.Contains(problem, test.says) || (problem == "") != (fix == "") {
			t.Errorf("%s: %q, fix %q", name, problem, fix)
		}
	}
	problem, fix := Forwarding(added, "mesh.example", []string{"10.96.0.53"})
	if !strings.Contains(problem, "does not forward mesh.example") || !strings.Contains(fix, "mesh.example:53 {") {
		t.Errorf("another zone: %s, fix %s", problem, fix)
	}
	if _, fix := Forwarding(plain, "clusterset.local", []string{"10.96.0.53"}); !strings.Contains(fix, "forward . 10.96.0.53") {
		t.Errorf("the fix does not have the block: %s", fix)
	}
}
