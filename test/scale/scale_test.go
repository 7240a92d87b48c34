package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

func TestMain(m *testing.M) { harness.Main(m) }

// checkProfiles checks that the profiles of these scenarios were written, and no others.
func checkProfiles(t *testing.T, dir string, of []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) != 2*len(of) {
		t.Errorf("there are %v, %v", all, err)
	}
	for _, name := range of {
		for _, process := range []string{"broker", "simulation"} {
			found, err := filepath.Glob(filepath.Join(dir, process+"-"+name+"-*.pprof"))
			if err != nil || len(found) != 1 {
				t.Errorf("%s of %s: %v, %v", name, process, found, err)
				continue
			}
			content, err := os.ReadFile(found[0])
			if err != nil || !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) { // profiles are compressed
				t.Errorf("%s is no profile: %d bytes, %v", found[0], len(content), err)
			}
		}
	}
}

// After each scenario all clusters have imported exactly what they should: each scenario waits for
// that. No time is asserted.
func TestScenarios(t *testing.T) {
	for _, test := range []struct {
		list              string
		real              []string
		members, services int
		profiles          []string
	}{
		{"idle,churn,rollout,join,restart,loss,elsewhere", []string{"east", "west"}, 25, 100, []string{"idle", "churn", "restart"}},
		// Imports stay as they are for a minute after the broker was set back, so this runs apart.
		{"setback", nil, 10, 20, []string{"set-back"}},
	} {
		t.Run(test.list, func(t *testing.T) {
			t.Parallel()
			selected, err := selectScenarios(test.list)
			if err != nil {
				t.Fatal(err)
			}
			e, err := newEnvironment(t.Context(), setup{real: test.real, renewEvery: objects.RenewEvery, leaseDuration: objects.LeaseDuration})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.close)
			e.profiles = t.TempDir()
			m := &measurement{
				size: tiny, services: test.services, scenarios: selected, report: &report.Report{Progress: t.Output()},
			}
			if err := m.runOn(t.Context(), e, test.members); err != nil {
				t.Fatal(err)
			}
			var table bytes.Buffer
			if err := m.report.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &table)
			if len(m.byMembers.names) < len(selected) {
				t.Errorf("%d scenarios have %d values", len(selected), len(m.byMembers.names))
			}
			checkProfiles(t, e.profiles, test.profiles)
			bySize := len(m.byServices.charts("services"))
			if want := strings.Contains(test.list, "elsewhere"); want != (bySize > 0) {
				t.Errorf("%d values by the number of services", bySize)
			}
		})
	}
}

func TestUnknownSelectionsAreRefused(t *testing.T) {
	if got, err := selectScenarios("loss,churn"); err != nil || len(got) != 2 || got[0].name != "churn" {
		t.Errorf("loss,churn: %v, %v", got, err)
	}
	if got, err := selectScenarios(""); err != nil || len(got) != len(scenarios)-1 {
		t.Errorf("without a list: %v, %v", got, err)
	}
	if _, err := selectScenarios("flood"); err == nil {
		t.Error("-scenario flood was accepted")
	}
	if got, err := parseMembers("100,10"); err != nil || len(got) != 2 || got[0] != 10 {
		t.Errorf("100,10: %v, %v", got, err)
	}
	for _, list := range []string{"", "ten", "9", "5000"} {
		if _, err := parseMembers(list); err == nil {
			t.Errorf("-members %q was accepted", list)
		}
	}
}

func TestSecondWave(t *testing.T) {
	for want, rates := range map[bool][][]int{
		true:  {{10, 110, 30, 20, 70}, {110, 10, 110}},
		false: {{}, {10, 110, 70, 40, 20, 20}, {20, 110, 40, 70}, {15, 15, 15}, {19, 5, 19}},
	} {
		for _, rate := range rates {
			var seconds []simulated.Second
			for _, n := range rate {
				seconds = append(seconds, slices.Repeat([]simulated.Second{{Requests: n}}, waveSeconds)...)
			}
			if got := hasSecondWave(seconds, 10); got != want {
				t.Errorf("%v: %t", rate, got)
			}
		}
	}
}

// recovery is how many requests 1,000 members sent in each second after a restart of the broker,
// once it was ready: run G of docs/scale.md.
var recovery = []int{
	357, 122, 313, 345, 288, 199, 231, 211, 260, 183, 240, 256, 231, 207, 244, 211, 256, 333, 349, 414, 272, 288, 280, 292,
	191, 171, 118, 175, 244, 195, 219, 158, 187, 158, 162, 166, 154, 207, 199, 195, 256, 236, 199, 150, 203, 260, 179, 215,
	268, 195, 158, 158, 171, 223, 260, 260, 272, 215, 244, 300, 203, 236, 183, 162, 240, 199, 158, 158, 187, 191, 191, 240,
	215, 191, 150, 130, 106, 114, 126, 114, 106, 106, 93, 114, 150, 130, 134, 138, 150, 150, 154, 142, 134, 154, 146, 150,
	114, 126, 106, 122, 114, 93, 110, 114, 134,
}

// Seconds differ at random. A crowd that begins anew, for ten seconds or in one, is a wave.
func TestSecondWaveAmongRandomSeconds(t *testing.T) {
	const idle = 140
	for name, c := range map[string]struct {
		more, during int
		want         bool
	}{"as measured": {0, 0, false}, "all members begin anew": {200, waveSeconds, true}, "all at once": {2000, 1, true}} {
		var seconds []simulated.Second
		for _, n := range recovery {
			seconds = append(seconds, simulated.Second{Requests: n})
		}
		for i := range c.during {
			seconds[len(seconds)-15+i].Requests += c.more
		}
		if got := hasSecondWave(seconds, idle); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestExponent(t *testing.T) {
	for want, points := range map[float64][]point{
		0: {{10, 7, ""}, {100, 7, ""}}, 1: {{10, 5, ""}, {50, 25, ""}, {100, 50, ""}}, 2: {{10, 1, ""}, {100, 100, ""}},
	} {
		if got := exponent(points); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %g", points, got)
		}
	}
	if got := exponent([]point{{10, 0, ""}, {100, 0, ""}}); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
}

// Differences are found in both directions.
func TestDifference(t *testing.T) {
	one := simulated.Imports{"a": {"east": {"10.0.0.1"}}}
	two := simulated.Imports{"a": {"east": {"10.0.0.1"}}, "b": {}}
	if err := difference(one, one); err != nil {
		t.Error(err)
	}
	if difference(one, two) == nil || difference(two, one) == nil {
		t.Error("a service that is missing or left behind was not found")
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	out := draw([]chart{{"a < b", "members", []float64{10, 100}, []float64{1, 2}}, {"c", "seconds", []float64{0}, []float64{0}}})
	for decoder := xml.NewDecoder(strings.NewReader(out)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
	}
	if got := strings.Count(out, "<polyline"); got != 2 {
		t.Errorf("%d lines in\n%s", got, out)
	}
}
