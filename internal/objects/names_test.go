package objects

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func service(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestNames(t *testing.T) {
	web := service("shop", "web")
	for name, tc := range map[string]struct{ got, want string }{
		"account":            {MemberAccount("east"), "member.east"},
		"aggregate":          {AggregateName(web), "web.shop"},
		"record":             {RecordName(web, "east"), "web.shop.east"},
		"record, two labels": {RecordName(web, "east.eu"), "web.shop.east.eu"},
		"slice":              {SliceName(web, "east", "web-abcde"), "web.shop.east.be8d394a02"},
		"imported slice":     {ImportedSliceName("web", "east", "web-abcde"), "web.east.be8d394a02"},
		"derived Service":    {DerivedServiceName("web"), "mcs-web-4b5e57f6eb"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", name, tc.got, tc.want)
		}
	}
}

// The longest service, namespace and cluster id must give names that the API server accepts.
func TestLongestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	longest := service(long, long)
	for name, tc := range map[string]struct {
		got    string
		length int
	}{
		"account":        {MemberAccount(long), 70},
		"aggregate":      {AggregateName(longest), 127},
		"record":         {RecordName(longest, long), 191},
		"slice":          {SliceName(longest, long, long), 202},
		"imported slice": {ImportedSliceName(long, long, long), 138},
	} {
		if problems := validation.IsDNS1123Subdomain(tc.got); len(tc.got) != tc.length || len(problems) > 0 {
			t.Errorf("%s: %d characters, want %d; %v", name, len(tc.got), tc.length, problems)
		}
	}
	for _, name := range []string{"a", strings.Repeat("a", 47), strings.Repeat("a", 48), strings.Repeat("a", 49), long} {
		derived := DerivedServiceName(name)
		if problems := validation.IsDNS1035Label(derived); len(problems) > 0 {
			t.Errorf("derived Service %s: %v", derived, problems)
		}
		if want := min(len(name), 48) + 15; len(derived) != want {
			t.Errorf("derived Service of %d characters: %d, want %d", len(name), len(derived), want)
		}
	}
	other := long[:62] + "b"
	if DerivedServiceName(long) == DerivedServiceName(other) {
		t.Errorf("%s and %s have the same derived Service", long, other)
	}
}

func TestNamesDoNotCollide(t *testing.T) {
	for _, pair := range [][2]types.NamespacedName{
		{service("c", "a-b"), service("b-c", "a")},
		{service("b", "a"), service("a", "b")},
		{service("b-c", "a-b"), service("c", "a-b-b")},
	} {
		if a, b := AggregateName(pair[0]), AggregateName(pair[1]); a == b {
			t.Errorf("%s and %s have the aggregate %s", pair[0], pair[1], a)
		}
	}
	label := rapid.StringMatching(`[a-z]([-a-z]{0,3}[a-z])?`)
	rapid.Check(t, func(t *rapid.T) {
		type export struct {
			service types.NamespacedName
			cluster string
		}
		draw := func(side string) export {
			cluster := label.Draw(t, side+" cluster")
			if rapid.Bool().Draw(t, side+" has two labels") {
				cluster += "." + label.Draw(t, side+" registry")
			}
			return export{service(label.Draw(t, side+" namespace"), label.Draw(t, side+" name")), cluster}
		}
		a, b := draw("first"), draw("second")
		if (a == b) != (RecordName(a.service, a.cluster) == RecordName(b.service, b.cluster)) {
			t.Fatalf("%v and %v: records %s and %s", a, b, RecordName(a.service, a.cluster), RecordName(b.service, b.cluster))
		}
		if (a == b) != (SliceName(a.service, a.cluster, "x") == SliceName(b.service, b.cluster, "x")) {
			t.Fatalf("%v and %v: the same slice", a, b)
		}
	})
}

func TestUnusedServiceName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range [][3]string{{"web", "east", "WEB"}, {"web", "west", "west.web"}, {"42", "east", "east.42"}, {"a-1", "east", "A-1"}} {
		if got := UnusedServiceName(c[0], c[1], "east"); got != c[2] {
			t.Errorf("slices of %s from %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
	for _, name := range []string{
		UnusedServiceName(long, "east", "east"), UnusedServiceName(long, "west.eu", "east"), UnusedServiceName("w", long, "east"),
	} {
		if errs := validation.IsValidLabelValue(name); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if UnusedServiceName(long, "west", "east") == UnusedServiceName(long, "north", "east") {
		t.Error("two clusters share a long name")
	}
}

func TestNamespaceAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed   []string
		namespace string
		want      bool
	}{
		"any by default":              {nil, "shop", true},
		"no kube- by default":         {nil, "kube-system", false},
		"no seamark- by default":      {nil, "seamark-system", false},
		"kubernetes is not kube-":     {nil, "kubernetes", true},
		"one of the list":             {[]string{"shop", "bank"}, "bank", true},
		"not in the list":             {[]string{"shop"}, "bank", false},
		"a reserved one, if named":    {[]string{"kube-system"}, "kube-system", true},
		"a name that only begins so":  {[]string{"shop"}, "shop-2", false},
		"an empty list is no list":    {[]string{}, "shop", true},
		"an empty list, and reserved": {[]string{}, "kube-public", false},
	} {
		if got := NamespaceAllowed(tc.allowed, tc.namespace); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
