package objects

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestClaimSelectors(t *testing.T) {
	for name, test := range map[string]struct {
		blocks []string
		want   []string
	}{
		"none": {nil, nil},
		"default blocks": {[]string{"243.0.64.0/18", "fd00:243::1:0/112"},
			[]string{"seamark.dev/claim-ipv4 in (243.0)", "seamark.dev/claim-ipv6 in (fd00-243-0-0-0-0-1)"}},
		"a larger block":      {[]string{"243.4.0.0/14"}, []string{"seamark.dev/claim-ipv4 in (243.4,243.5,243.6,243.7)"}},
		"two blocks":          {[]string{"243.4.0.0/18", "243.9.64.0/18"}, []string{"seamark.dev/claim-ipv4 in (243.4,243.9)"}},
		"more than are named": {[]string{"243.0.0.0/8", "fd00:243::/64"}, []string{"seamark.dev/claim-ipv4", "seamark.dev/claim-ipv6"}},
		"several groups": {[]string{"fd00::fffe:0/111", "fd00::1:fffe:0/111"}, []string{"seamark.dev/claim-ipv6 in " +
			"(fd00-0-0-0-0-0-fffe,fd00-0-0-0-0-0-ffff,fd00-0-0-0-0-1-fffe,fd00-0-0-0-0-1-ffff)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClaimSelectors(ParsePrefixes(test.blocks)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The owner of a block selects the records that claim an address of it, whichever size it has, and
// records of an earlier version.
func TestClaimsAreSelected(t *testing.T) {
	for _, test := range []struct {
		ips   []string
		block string
		want  bool
	}{
		{[]string{"243.0.64.1"}, "243.0.64.0/18", true},
		{[]string{"243.0.64.1"}, "243.0.0.0/12", true},
		{[]string{"243.0.64.1"}, "243.0.0.0/8", true},
		{[]string{"243.1.64.1"}, "243.0.64.0/18", false},
		{[]string{"243.1.64.1", "fd00:243::1:5"}, "fd00:243::1:0/112", true},
		{[]string{"243.1.64.1", "fd00:243::2:5"}, "fd00:243::1:0/112", false},
		{[]string{"fd00:243::2:5"}, "fd00:243::/48", true},
		{nil, "243.0.0.0/8", true}, // no claim is a claim of nothing: a block of everything reads it too
		{nil, "243.0.64.0/18", false},
	} {
		r := &v1alpha1.ExportRecord{Spec: v1alpha1.ExportRecordSpec{ClusterSetIPs: test.ips}}
		r.Labels = map[string]string{}
		SetClaimLabels(r)
		for key, value := range r.Labels {
			if errs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(errs) > 0 {
				t.Errorf("%v is labelled %s: %q: %v", test.ips, key, value, errs)
			}
		}
		selected := false
		for _, text := range ClaimSelectors([]netip.Prefix{netip.MustParsePrefix(test.block)}) {
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			selected = selected || selector.Matches(labels.Set(r.Labels))
		}
		if selected != test.want {
			t.Errorf("a record that claims %v is selected for %s: %v, want %v", test.ips, test.block, selected, test.want)
		}
		earlier, err := labels.Parse(UnlabelledClaims)
		if err != nil {
			t.Fatal(err)
		}
		if earlier.Matches(labels.Set(r.Labels)) || !earlier.Matches(labels.Set{}) {
			t.Errorf("%q does not tell a labelled record (%v) from one of an earlier version", UnlabelledClaims, r.Labels)
		}
	}
}
