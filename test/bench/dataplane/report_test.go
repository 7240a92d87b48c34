package main

import (
	"testing"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

func TestReportSaysWhatIsOver(t *testing.T) {
	side := func(full, change time.Duration, perSecond float64) contenderResults {
		load := loadFigures{full: full, updates: []time.Duration{change}}
		return contenderResults{few: load, many: load, rate: rate{rounds: []float64{perSecond}}}
	}
	add := func(seamark contenderResults) []report.Row {
		m := &results{size: full, seamark: seamark, kubeProxy: side(20*time.Second, 5*time.Second, 5000), direct: rate{rounds: []float64{20000}}}
		r := &report.Report{Peers: []string{"kube-proxy", "direct"}}
		m.add(r)
		return r.Rows
	}
	slow := side(1100*time.Millisecond, 21*time.Millisecond, 15000) // faster than kube-proxy
	slow.few.updates[0] = 22 * time.Millisecond
	good, bad := add(side(900*time.Millisecond, 19*time.Millisecond, 19000)), add(slow)
	for i := range good {
		budget := good[i].Budget != "" && good[i].Unit != "×" // growth is a row of its own
		if good[i].Over || bad[i].Over != budget {
			t.Errorf("%+v and %+v", good[i], bad[i])
		}
	}
}
