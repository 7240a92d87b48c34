package fault

import (
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var clusters = []string{"east", "west", "north"}

// cut returns a cut in one direction.
func cut(from, to string) Fault { return Fault{Kind: Cut, From: from, To: to} }

func loss(from, to string, percent float64) Fault {
	return Fault{Kind: Loss, From: from, To: to, Percent: percent}
}

func TestPaths(t *testing.T) {
	for name, test := range map[string]struct {
		path Path
		want []Fault
	}{
		"both ways":          {Path{From: "west", To: "north"}, []Fault{cut("west", "north"), cut("north", "west")}},
		"one way":            {Path{From: "west", To: "north", OneWay: true}, []Fault{cut("west", "north")}},
		"all others":         {Path{From: "west"}, []Fault{cut("west", "east"), cut("east", "west"), cut("west", "north"), cut("north", "west")}},
		"all others one way": {Path{From: "west", OneWay: true}, []Fault{cut("west", "east"), cut("west", "north")}},
	} {
		got, err := test.path.CutOff(clusters)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	if _, err := (Path{From: "west", To: "west"}).CutOff(clusters); err == nil || !strings.Contains(err.Error(), "between west and itself") {
		t.Errorf("a path to itself: %v", err)
	}
	if _, err := (Path{From: "east"}).CutOff([]string{"east"}); err == nil || !strings.Contains(err.Error(), "only one cluster") {
		t.Errorf("all others of one cluster: %v", err)
	}
}

func TestImpossibleValues(t *testing.T) {
	path := Path{From: "west", To: "north"}
	for _, percent := range []float64{-1, 0, 0.001, 101, math.Inf(1), math.NaN()} {
		if _, err := path.Lose(clusters, percent); err == nil || !strings.Contains(err.Error(), "choose 0.01 % to 100 %") {
			t.Errorf("loss of %g %%: %v", percent, err)
		}
	}
	for _, delay := range []time.Duration{-1, 0, time.Microsecond, time.Hour} {
		if _, err := path.DelayBy(clusters, delay); err == nil || !strings.Contains(err.Error(), "choose 1ms to 1m0s") {
			t.Errorf("delay of %s: %v", delay, err)
		}
	}
	if _, err := ParseKind("flood"); err == nil || !strings.Contains(err.Error(), "choose from cut, loss, delay, control-plane, node") {
		t.Errorf("an unknown kind: %v", err)
	}
}

// TestAddReplaces checks that a place has one fault of each kind, and that adding one twice changes
// nothing.
func TestAddReplaces(t *testing.T) {
	faults := Add(nil, cut("west", "north"), loss("west", "north", 10))
	faults = Add(faults, loss("west", "north", 20), loss("north", "west", 30), cut("west", "north"))
	faults = Add(faults, Fault{Kind: Node, Cluster: "west"})
	faults = Add(faults, Fault{Kind: Node, Cluster: "west"})
	want := []Fault{cut("west", "north"), loss("north", "west", 30), loss("west", "north", 20), {Kind: Node, Cluster: "west"}}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("%s", diff)
	}
}

func TestSelections(t *testing.T) {
	faults := []Fault{
		cut("east", "west"), cut("west", "north"), cut("north", "west"), loss("north", "west", 5), loss("east", "north", 5),
		{Kind: ControlPlane, Cluster: "west"}, {Kind: Node, Cluster: "east"},
	}
	for name, test := range map[string]struct {
		selection Selection
		want      []int // indexes of faults
	}{
		"all":                  {Selection{}, []int{0, 1, 2, 3, 4, 5, 6}},
		"one cluster":          {Selection{Clusters: []string{"west"}}, []int{0, 1, 2, 3, 5}},
		"two clusters":         {Selection{Clusters: []string{"north", "west"}}, []int{1, 2, 3}},
		"kind":                 {Selection{Kind: Loss}, []int{3, 4}},
		"kind and two":         {Selection{Kind: Cut, Clusters: []string{"west", "north"}}, []int{1, 2}},
		"kind and one cluster": {Selection{Kind: ControlPlane, Clusters: []string{"west"}}, []int{5}},
		"none":                 {Selection{Kind: Delay}, nil},
	} {
		var want, others []Fault
		for i, f := range faults {
			if len(test.want) > 0 && test.want[0] == i {
				want, test.want = append(want, f), test.want[1:]
			} else {
				others = append(others, f)
			}
		}
		selected, rest := test.selection.Split(faults)
		if diff := cmp.Diff(want, selected) + cmp.Diff(others, rest); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if err := (Selection{}).Check(); err != nil {
		t.Errorf("the empty selection: %v", err)
	}
	for want, selection := range map[string]Selection{
		"two different clusters":    {Clusters: []string{"west", "west"}},
		"one cluster or two, not 3": {Clusters: clusters},
		"name one cluster, not two": {Kind: Node, Clusters: []string{"west", "north"}},
	} {
		if err := selection.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", selection, err)
		}
	}
}

// TestMessages has every sentence that users see about a fault, and its JSON.
func TestMessages(t *testing.T) {
	for _, test := range []struct {
		fault      Fault
		text, json string
	}{
		{cut("west", "north"), "packets from west to north are dropped", `{"kind":"cut","from":"west","to":"north"}`},
		{
			loss("west", "north", 2.5), "2.5 % of the packets from west to north are dropped",
			`{"kind":"loss","from":"west","to":"north","percent":2.5}`,
		},
		{
			Fault{Kind: Delay, From: "west", To: "north", Delay: metav1.Duration{Duration: 500 * time.Millisecond}},
			"packets from west to north arrive 500ms later", `{"kind":"delay","from":"west","to":"north","delay":"500ms"}`,
		},
		{
			Fault{Kind: ControlPlane, Cluster: "west"}, "the control plane of west is stopped, its pods run",
			`{"kind":"control-plane","cluster":"west"}`,
		},
		{
			Fault{Kind: Node, Cluster: "west"}, "the node of west is stopped with all pods, the control plane runs",
			`{"kind":"node","cluster":"west"}`,
		},
	} {
		text, err := json.Marshal(test.fault)
		if test.fault.String() != test.text || string(text) != test.json || err != nil {
			t.Errorf("%s\n%s\n%v", test.fault, text, err)
		}
		var read Fault
		if err := json.Unmarshal(text, &read); err != nil || read != test.fault {
			t.Errorf("%s was read as %+v: %v", text, read, err)
		}
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestRuleset(t *testing.T) {
	const reset = "table netdev seamark_sandbox_faults\ndelete table netdev seamark_sandbox_faults\n"
	const head = reset + "table netdev seamark_sandbox_faults {\n  chain arriving {\n" +
		"    type filter hook ingress device \"eth0\" priority filter\n" +
		"    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
	dual := prefixes("10.0.0.0/8", "172.30.0.12/32", "fd00::/8")
	for name, test := range map[string]struct {
		rules []Rule
		want  []string
	}{
		"cut": {
			[]Rule{{From: dual, Percent: 100}},
			[]string{"ip saddr { 10.0.0.0/8, 172.30.0.12/32 } drop", "ip6 saddr { fd00::/8 } drop"},
		},
		"one family":  {[]Rule{{From: prefixes("fd00::/8"), Percent: 100}}, []string{"ip6 saddr { fd00::/8 } drop"}},
		"destination": {[]Rule{{To: prefixes("10.0.0.0/8"), Percent: 100}}, []string{"ip daddr { 10.0.0.0/8 } drop"}},
		"both": {
			[]Rule{{From: dual, To: prefixes("10.1.0.0/16"), Percent: 100}},
			[]string{"ip saddr { 10.0.0.0/8, 172.30.0.12/32 } ip daddr { 10.1.0.0/16 } drop"},
		},
		"loss": {
			[]Rule{{From: prefixes("10.0.0.0/8"), Percent: 12.34}},
			[]string{"ip saddr { 10.0.0.0/8 } numgen random mod 10000 < 1234 drop"},
		},
		"delay": {
			[]Rule{{From: prefixes("fd00::/8"), Via: "delay-west"}},
			[]string{`ip6 saddr { fd00::/8 } fwd to "delay-west"`},
		},
		"in order": {
			[]Rule{{From: prefixes("10.0.0.0/8"), Percent: 0.01}, {From: prefixes("10.0.0.0/8"), Via: "x"}},
			[]string{"ip saddr { 10.0.0.0/8 } numgen random mod 10000 < 1 drop", `ip saddr { 10.0.0.0/8 } fwd to "x"`},
		},
		"matching nothing": {[]Rule{{Percent: 100}}, nil},
	} {
		var lines strings.Builder
		for _, line := range test.want {
			lines.WriteString("    " + line + "\n")
		}
		if diff := cmp.Diff(head+lines.String()+"  }\n}\n", Ruleset("eth0", test.rules)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if got := Ruleset("eth0", nil); got != reset {
		t.Errorf("without rules:\n%s", got)
	}
}
