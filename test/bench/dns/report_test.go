package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

func TestParsePerf(t *testing.T) {
	const text = `> NOERROR svc-1.bench.svc.clusterset.local A 0.000120
> NOERROR svc-2.bench.svc.clusterset.local A 0.000180
  Queries completed:    100 (100.00%)
  Response codes:       NOERROR 100 (100.00%)
  Queries per second:   51234.500000
`
	l, err := parsePerf(text, 100*20*time.Microsecond)
	if err != nil || l.perSecond != 51234.5 || l.cpu != 20*time.Microsecond || len(l.latencies) != 2 ||
		report.Percentile(l.latencies, 0.5) != 120*time.Microsecond {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"", strings.Replace(text, "NOERROR 100 (100.00%)", "NOERROR 99 (99.00%), NXDOMAIN 1 (1.00%)", 1)} {
		if _, err := parsePerf(bad, 0); err == nil {
			t.Errorf("accepted: %q", bad)
		}
	}
}

func TestCompareSaysWhatIsOver(t *testing.T) {
	found := map[string]*figures{
		"constant": {rates: []float64{50000}, cpus: []float64{20}},
		"seamark":  {rates: []float64{48000}, cpus: []float64{21}, resident: 10, answerable: time.Second},
		"in-tree":  {rates: []float64{28000}, cpus: []float64{35}, resident: 20},
	}
	r := &report.Report{}
	compare(r, 1000, found)
	found["seamark"].rates, found["seamark"].cpus, found["seamark"].resident = []float64{40000}, []float64{23}, 30
	found["seamark"].answerable, found["seamark"].denied = 2*time.Second, 1
	bad := &report.Report{}
	compare(bad, 1000, found)
	for i := range r.Rows {
		if r.Rows[i].Over || bad.Rows[i].Over != (r.Rows[i].Budget != "") {
			t.Errorf("%+v and %+v", r.Rows[i], bad.Rows[i])
		}
	}
}
