package addresses

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// Members were admitted in the order of their ids: a, b, c, d.
func TestClaims(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	a := Member{ID: "a", Admitted: at(1), Published: prefixes("10.1.0.0/16", "192.168.1.1/32", "10.96.0.0/16"), Pods4: true}
	b := Member{ID: "b", Admitted: at(2), Published: prefixes("10.2.0.0/16", "10.96.0.0/16"), Pods4: true}
	unknown := Member{ID: "c", Admitted: at(3)} // its nodes publish no ranges of pods
	for name, test := range map[string]struct {
		others    []Member
		publisher string
		addr      string
		want      string // part of the reason; empty: it may
	}{
		"its own pods":                         {[]Member{a, b}, "b", "10.2.0.5", ""},
		"outside of all ranges":                {[]Member{a, b}, "b", "203.0.113.7", ""},
		"pods of an older member":              {[]Member{a, b}, "b", "10.1.0.5", "ranges of cluster a"},
		"a node of an older member":            {[]Member{a, b}, "b", "192.168.1.1", "ranges of cluster a"},
		"pods of a younger member":             {[]Member{a, b}, "a", "10.2.0.5", "ranges of cluster b"},
		"Services that both have, the older":   {[]Member{a, b}, "a", "10.96.0.9", ""},
		"Services that both have, the younger": {[]Member{a, b}, "b", "10.96.0.9", "ranges of cluster a"},
		"ranges not known, pods of an older":   {[]Member{a, unknown}, "c", "10.1.0.5", "ranges of cluster a"},
		"ranges not known, elsewhere":          {[]Member{a, unknown}, "c", "10.9.0.5", ""},
		"ranges not known, claimed by a younger": {
			[]Member{unknown, {ID: "d", Admitted: at(4), Published: prefixes("0.0.0.0/0")}},
			"c", "10.9.0.5", "",
		},
		"its ranges claimed by a younger": {
			[]Member{b, {ID: "d", Admitted: at(4), Published: prefixes("10.2.0.0/16")}},
			"b", "10.2.0.5", "",
		},
		"a younger one that claims an older's range": {
			[]Member{b, {ID: "d", Admitted: at(4), Published: prefixes("10.2.0.0/16"), Pods4: true}},
			"d", "10.2.0.5", "ranges of cluster b",
		},
		"inside what the admin fixed": {[]Member{a, {ID: "d", Admitted: at(4), Fixed: prefixes("10.4.0.0/16")}}, "d", "10.4.0.5", ""},
		"outside of what the admin fixed": {
			[]Member{a, {ID: "d", Admitted: at(4), Fixed: prefixes("10.4.0.0/16"), Published: prefixes("10.5.0.0/16")}},
			"d", "10.5.0.5", "admin fixed for that cluster",
		},
		"fixed for it, claimed by an older": {[]Member{a, {ID: "d", Admitted: at(4), Fixed: prefixes("10.1.0.0/24")}}, "d", "10.1.0.5", ""},
		"fixed for another": {
			[]Member{a, {ID: "d", Admitted: at(4), Fixed: prefixes("10.1.0.0/24")}},
			"a", "10.1.0.5", "fixed for cluster d",
		},
		"pods of the cluster that asks": {
			[]Member{a, {ID: "node/n1", Here: true, Published: prefixes("10.7.0.0/24")}},
			"a", "10.7.0.5", "this cluster's own pods",
		},
		"the admin's word on pods of that cluster": {
			[]Member{{ID: "d", Fixed: prefixes("10.7.0.0/24")}, {ID: "node/n1", Here: true, Published: prefixes("10.7.0.0/24")}},
			"d", "10.7.0.5", "",
		},
		"no member": {[]Member{a}, "x", "10.9.0.5", "no member"},
		"IPv6 of another": {
			[]Member{{ID: "a", Admitted: at(1), Published: prefixes("fd00:1::/64")}, unknown},
			"c", "fd00:1::5", "ranges of cluster a",
		},
	} {
		claims := NewClaims()
		for _, m := range test.others {
			claims.Set(Member{ID: m.ID, Published: prefixes("0.0.0.0/0", "::/0")}) // replaced
			claims.Set(m)
		}
		claims.Set(Member{ID: "gone", Published: prefixes("0.0.0.0/0", "::/0")})
		claims.Remove("gone")
		got := claims.WhyNot(test.publisher, netip.MustParseAddr(test.addr))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
