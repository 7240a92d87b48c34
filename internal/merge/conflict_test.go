package merge_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// messages are records that lead to each message; testdata/messages holds the texts.
var messages = []struct {
	file string
	in   records
}{
	{"agree", records{record("paris", 1), record("oslo", 2)}},
	{"alone", records{record("paris", 1)}},
	{"type-headless-wins", records{record("paris", 1, headless()), record("oslo", 2), record("rome", 3)}},
	{"type-ip-wins", records{record("paris", 1), record("oslo", 2, headless())}},
	{"ports-oldest-wins", records{record("paris", 1), record("oslo", 2, withPorts(port("http", tcp, 8080))),
		record("rome", 3, withPorts(port("web", tcp, 80))), record("bern", 4, withPorts(port("http", tcp, 8080)))}},
	{"ports-union", records{record("paris", 1), record("oslo", 2, withPorts(port("https", tcp, 443), port("http", tcp, 80))),
		record("rome", 3, withPorts(port("dns", udp, 53)))}},
	{"ports-unnamed", records{record("paris", 1, withPorts(port("", tcp, 80))), record("oslo", 2)}},
	{"ports-none", records{record("paris", 1, headless()), record("oslo", 2, headless(), withPorts())}},
	{"ports-application-protocol", records{record("paris", 1, withPorts(appPort("http", 80, "kubernetes.io/h2c"))),
		record("oslo", 2)}},
	{"ports-many", records{record("paris", 1, withPorts(numbered(1, 40)...)), record("oslo", 2, withPorts(numbered(20, 60)...))}},
	{"ports-classic", records{
		record("paris", 1, withClusterSetIP(false, false), withPorts(port("http", tcp, 80), port("https", tcp, 443))),
		record("oslo", 2, withClusterSetIP(false, false), withPorts(port("http", tcp, 80), port("dns", udp, 53)))}},
	{"ports-classic-none", records{record("paris", 1, withClusterSetIP(false, false)),
		record("oslo", 2, withClusterSetIP(false, false), withPorts(port("dns", udp, 53)))}},
	{"session-affinity", records{record("paris", 1, sticky(60)), record("oslo", 2), record("rome", 3)}},
	{"session-affinity-config", records{record("paris", 1, sticky(60)), record("oslo", 2, sticky(90)),
		record("rome", 3, withAffinity("ClientIP"))}},
	{"internal-traffic-policy", records{record("paris", 1), record("oslo", 2, withPolicy("Local"))}},
	{"traffic-distribution", records{record("paris", 1, withDistribution("PreferClose")), record("oslo", 2)}},
	{"labels", records{record("paris", 1, withLabels("tier", "web", "app", "shop")), record("oslo", 2, withLabels("tier", "db")),
		record("rome", 3)}},
	{"annotations-long", records{record("paris", 1, withAnnotations("a.example/doc", strings.Repeat("long ", 50), "b", "1", "c",
		strings.Repeat("x", 60), "d", strings.Repeat("y", 60))), record("oslo", 2)}},
	{"ip-families-oldest-wins", records{record("paris", 1, withFamilies(ipv4)), record("oslo", 2, withFamilies(ipv4, ipv6))}},
	{"ip-families-newer-has-fewer", records{record("paris", 1, withFamilies(ipv6, ipv4)), record("oslo", 2, withFamilies(ipv4))}},
	{"ip-families-left-out", records{record("paris", 1, withFamilies(ipv4)), record("oslo", 2, withFamilies(ipv6))}},
	{"clusterset-ip-on", records{record("paris", 1), record("oslo", 2, withClusterSetIP(false, false))}},
	{"clusterset-ip-off", records{record("paris", 1, withClusterSetIP(false, false)), record("oslo", 2), record("rome", 3)}},
	{"clusterset-ip-oldest-changed", records{record("paris", 1, withClusterSetIP(true, false)), record("oslo", 2)}},
	{"several", records{record("paris", 1, sticky(60), withLabels("tier", "web")), record("oslo", 2, headless()),
		record("rome", 3, withPorts(port("http", tcp, 8080)), withClusterSetIP(false, false)),
		record("bern", 4, sticky(90), withFamilies(ipv6))}},
}

func numbered(from, to int32) []v1alpha1.ServicePort {
	var list []v1alpha1.ServicePort
	for n := from; n <= to; n++ {
		list = append(list, port(fmt.Sprintf("port-%d", n), tcp, n))
	}
	return list
}

func TestConditionMessages(t *testing.T) {
	for _, tc := range messages {
		t.Run(tc.file, func(t *testing.T) {
			status, reason, message := mergetest.Merge(tc.in).Condition()
			got := fmt.Sprintf("%s %s\n%s\n", status, reason, strings.ReplaceAll(message, ". ", ".\n"))
			golden(t, tc.file, got)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "messages", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("no golden file; write it with go test -update: %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// A message is at most as long as the CRD allows. Clusters are counted only if they do not fit.
func TestLongMessages(t *testing.T) {
	conflicting := func(n int) merge.Result {
		in := records{record("the-oldest", 0, sticky(60), withLabels("k", "v"))}
		for i := range n {
			in = append(in, record(fmt.Sprintf("%s-%04d", strings.Repeat("x", 58), i), i+1,
				withPorts(port("http", tcp, int32(1000+i))), withLabels("k", strings.Repeat("v", 50))))
		}
		return mergetest.Merge(in)
	}
	few := conflicting(40)
	if _, _, message := few.Condition(); strings.Contains(message, "more disagree") || strings.Count(message, "-0039") != 3 {
		t.Errorf("clusters are counted although there is room to name them: %d bytes", len(message))
	}
	many := conflicting(2000)
	_, reason, message := many.Condition()
	if len(message) > 32768 || len(message) < 30000 {
		t.Errorf("message of %d bytes", len(message))
	}
	if !strings.Contains(message, "more disagree") || len(strings.Split(message, ". ")) != 3 {
		t.Errorf("a conflict is missing, or the rest is not counted: %s", message)
	}
	checkCondition(t, reason, message)
	named := strings.Count(many.Conflicts[0].Message(), "-")
	var more int
	tail := regexp.MustCompile(`and (\d+) more disagree$`).FindStringSubmatch(many.Conflicts[0].Message())
	if tail == nil {
		t.Fatalf("message ends in %s", many.Conflicts[0].Message()[32000:])
	}
	if _, err := fmt.Sscan(tail[1], &more); err != nil {
		t.Fatal(err)
	}
	if named += more - 1; named != 2000 { // one dash is the oldest's
		t.Errorf("%d clusters are named or counted, want 2000", named)
	}
	for _, c := range many.Conflicts {
		if len(c.Disagree) != 2000 {
			t.Errorf("%s lists %d of 2000 clusters", c.Reason, len(c.Disagree))
		}
	}
}

// conditionReason is the pattern of the CRD.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func checkCondition(t interface{ Errorf(string, ...any) }, reason, message string) {
	if len(reason) > 1024 || !conditionReason.MatchString(reason) {
		t.Errorf("reason %q is refused by the CRD", reason)
	}
	if len(message) > 32768 {
		t.Errorf("message of %d bytes is refused by the CRD", len(message))
	}
}
