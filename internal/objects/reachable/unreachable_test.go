package reachable

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func TestUnreachableProperty(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 16, 20, 13, 14, 0, time.UTC)
	given := Unreachables{{"west", "IPv6"}: since, {"west", "IPv4"}: since.Add(time.Second), {"east", "IPv4"}: since}
	value := Property(given).Spec.Value
	if want := "east/IPv4@2026-11-16T20:13:14Z,west/IPv4@2026-11-16T20:13:15Z,west/IPv6@2026-11-16T20:13:14Z"; value != want {
		t.Errorf("the value is %q, want %q", value, want)
	}
	if diff := cmp.Diff(given, Parse(value)); diff != "" {
		t.Errorf("the parsed value differs (-want +got):\n%s", diff)
	}
	odd := " west/IPv4@2026-11-16T20:13:14Z , ,/IPv4@2026-11-16T20:13:14Z,east,east/IPv5@2026-11-16T20:13:14Z,east/IPv4@now,east/IPv4"
	if diff := cmp.Diff(Unreachables{{"west", "IPv4"}: since}, Parse(odd)); diff != "" {
		t.Errorf("from an odd value (-want +got):\n%s", diff)
	}
}

func TestLeaveOutUnreachable(t *testing.T) {
	t.Parallel()
	slice := func(cluster string, family discoveryv1.AddressType, ready bool, ports ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: family}
		s.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"x"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}
		for _, p := range ports {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(p)})
		}
		return s
	}
	west4 := slice("west", discoveryv1.AddressTypeIPv4, true, "http", "metrics")
	for name, test := range map[string]struct {
		others []*discoveryv1.EndpointSlice
		want   []string // the ports of west that stay
	}{
		"no other cluster":                  {nil, []string{"http", "metrics"}},
		"another serves one port":           {[]*discoveryv1.EndpointSlice{slice("east", "IPv4", true, "http")}, []string{"metrics"}},
		"another serves both":               {[]*discoveryv1.EndpointSlice{slice("east", "IPv4", true, "metrics", "http")}, nil},
		"another serves the other family":   {[]*discoveryv1.EndpointSlice{slice("east", "IPv6", true, "http")}, []string{"http", "metrics"}},
		"another has no ready endpoint":     {[]*discoveryv1.EndpointSlice{slice("east", "IPv4", false, "http")}, []string{"http", "metrics"}},
		"the other is not reachable either": {[]*discoveryv1.EndpointSlice{slice("south", "IPv4", true, "http")}, []string{"http", "metrics"}},
		"west itself in the other family":   {[]*discoveryv1.EndpointSlice{slice("west", "IPv6", true, "http")}, []string{"http", "metrics"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append([]*discoveryv1.EndpointSlice{west4.DeepCopy()}, test.others...)
			unreachable := Unreachables{{"west", "IPv4"}: time.Now(), {"south", "IPv4"}: time.Now()}
			var got []string
			left := LeaveOut(all, unreachable)
			for _, s := range left {
				if SourceOf(s) == (Key{"west", "IPv4"}) {
					for _, p := range s.Ports {
						got = append(got, *p.Name)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("of the unreachable cluster stays (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(west4, all[0]); diff != "" {
				t.Errorf("the given slice was changed (-before +after):\n%s", diff)
			}
			if got := LeaveOut(all, nil); len(got) != len(all) {
				t.Errorf("with all clusters reachable, %d of %d slices stay", len(got), len(all))
			}
		})
	}
}

func TestChangedReachability(t *testing.T) {
	t.Parallel()
	at := time.Now()
	before := Unreachables{{"west", "IPv4"}: at, {"east", "IPv4"}: at}
	// Only the time of east differs: it was unreachable and is.
	now := Unreachables{{"west", "IPv6"}: at, {"east", "IPv4"}: at.Add(time.Second)}
	want := map[Key]bool{{"west", "IPv4"}: true, {"west", "IPv6"}: true}
	if diff := cmp.Diff(want, before.Changed(now)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if changed := before.Changed(before); len(changed) > 0 {
		t.Errorf("changed although nothing did: %v", changed)
	}
	if changed := Unreachables(nil).Changed(before); len(changed) != len(before) {
		t.Errorf("from none to two: %v", changed)
	}
}
