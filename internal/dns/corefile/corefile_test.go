package corefile_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
)

// usual is the Corefile of kubeadm.
const usual = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
`

const block = "# BEGIN seamark: names of the clusterset (added by `seamark join`, taken out by `seamark leave`)\n" +
	"clusterset.local:53 {\n    errors\n    cache {\n        success 9984 3600 0\n        denial 9984 1 0\n    }\n" +
	"    forward . 10.96.0.53\n}\n# END seamark\n"

var (
	forward = corefile.Forward{Servers: []string{"10.96.0.53"}}
	reverse = corefile.Forward{
		Zone: "ClusterSet.Local.", Reverse: []string{"243.in-addr.arpa", "1.10.in-addr.arpa"}, Servers: forward.Servers,
	}
	withReverse = strings.Replace(block, "# END seamark\n",
		"243.in-addr.arpa:53 1.10.in-addr.arpa:53 {\n    errors\n    forward . 10.96.0.53\n}\n# END seamark\n", 1)
)

func TestAdd(t *testing.T) {
	other := strings.ReplaceAll(block, "10.96.0.53", "10.96.0.99")
	for name, c := range map[string]struct {
		text, want string
		forward    corefile.Forward
	}{
		"usual":                    {usual, usual + block, forward},
		"empty":                    {"", block, forward},
		"without line end":         {strings.TrimSuffix(usual, "\n"), usual + block, forward},
		"again":                    {usual + block, usual + block, forward},
		"new address":              {usual + other, usual + block, forward},
		"in the middle":            {other + usual, block + usual, forward},
		"reverse zones":            {usual, usual + withReverse, reverse},
		"reverse zones, again":     {usual + withReverse, usual + withReverse, reverse},
		"no reverse zone any more": {usual + withReverse, usual + block, forward},
		"another's reverse zone": {"1.10.in-addr.arpa {\n whoami\n}\n", "1.10.in-addr.arpa {\n whoami\n}\n" +
			strings.Replace(withReverse, " 1.10.in-addr.arpa:53", "", 1), reverse},
		"another port": {usual, usual + strings.Replace(block, "10.96.0.53", "10.96.0.53:5353 [fd00::53]:5353 fd00::1", 1),
			corefile.Forward{Servers: []string{"10.96.0.53:5353", "[fd00::53]:5353", "fd00::1"}}},
		"a zone of that name on another port": {"clusterset.local:5353 {\n}\n", "clusterset.local:5353 {\n}\n" + block, forward},
		"a zone of that name in a comment":    {"# clusterset.local:53 {\n", "# clusterset.local:53 {\n" + block, forward},
		"a zone of that name as an argument": {".:53 {\n  forward clusterset.local 10.0.0.1\n}\n",
			".:53 {\n  forward clusterset.local 10.0.0.1\n}\n" + block, forward},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := corefile.Add(c.text, c.forward)
			if err != nil || got != c.want {
				t.Errorf("got %v:\n%s\nwant:\n%s", err, got, c.want)
			}
			if has, err := corefile.Has(got); !has || err != nil {
				t.Errorf("Has of that: %v, %v", has, err)
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		forward corefile.Forward
		want    error
	}{
		"another's block":            {usual + "clusterset.local:53 {\n forward . 10.0.0.1\n}\n", forward, corefile.ErrZoneTaken},
		"another's, other spelling":  {"dns://ClusterSet.local. {\n whoami\n}\n", forward, corefile.ErrZoneTaken},
		"another's, of several":      {"a.example:53, clusterset.local:53 {\n}\n", forward, corefile.ErrZoneTaken},
		"another's, over many lines": {"a.example,\nclusterset.local\n{\n}\n", forward, corefile.ErrZoneTaken},
		"no end":                     {usual + strings.Replace(block, "# END seamark\n", "", 1), forward, corefile.ErrOpenBlock},
		"no begin":                   {usual + "# END seamark\n", forward, corefile.ErrOpenBlock},
		"twice":                      {block + block, forward, corefile.ErrOpenBlock},
		"no server":                  {usual, corefile.Forward{}, nil},
		"a name as server":           {usual, corefile.Forward{Servers: []string{"dns.example"}}, nil},
		"no zone":                    {usual, corefile.Forward{Zone: "a zone", Servers: forward.Servers}, nil},
		"a zone with a brace":        {usual, corefile.Forward{Zone: "a{", Servers: forward.Servers}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := corefile.Add(c.text, c.forward)
			if err == nil || got != "" || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("got %v and %q, want %v", err, got, c.want)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"at the end":    {usual + block, usual},
		"with reverse":  {usual + withReverse, usual},
		"at the start":  {block + usual, usual},
		"between":       {usual + block + "# mine\n", usual + "# mine\n"},
		"alone":         {block, ""},
		"not there":     {usual, usual},
		"empty":         {"", ""},
		"without an LF": {usual + strings.TrimSuffix(block, "\n"), usual},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := corefile.Remove(c.text); err != nil || got != c.want {
				t.Errorf("got %v:\n%s\nwant:\n%s", err, got, c.want)
			}
		})
	}
	if _, err := corefile.Remove(usual + "# BEGIN seamark\n"); !errors.Is(err, corefile.ErrOpenBlock) {
		t.Errorf("a block without an end: %v", err)
	}
	if has, err := corefile.Has(usual); has || err != nil {
		t.Errorf("Has of a Corefile without our block: %v, %v", has, err)
	}
}

// For any Corefile, adding is idempotent, and removing restores the text except for a missing last
// line end.
func TestAddThenRemoveGivesBackWhatWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.SampledFrom([]string{"# a comment", "", ".:53 {", "}", "    errors", "\tlog", "example.org {",
			"   # BEGIN other", "é {", "{"})).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if len(lines) > 0 && rapid.Bool().Draw(t, "line end") {
			text += "\n"
		}
		once, err := corefile.Add(text, forward)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := corefile.Add(once, forward)
		if err != nil || twice != once {
			t.Fatalf("adding again: %v\n%s\n%s", err, once, twice)
		}
		back, err := corefile.Remove(once)
		if err != nil || strings.TrimSuffix(back, "\n") != strings.TrimSuffix(text, "\n") || len(back) < len(text) {
			t.Fatalf("%q came back as %q (%v)", text, back, err)
		}
	})
}
