package harness

import (
	"strings"
	"testing"
)

func TestParseMetric(t *testing.T) {
	const text = `# TYPE requests counter
requests{verb="GET",code="200"} 7
requests_total{verb="GET"} 1
requests{verb="PUT",code=""} 1e+06
`
	got, err := ParseMetric(strings.NewReader(text), "requests")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Value != 7 || got[0].Labels["verb"] != "GET" || got[0].Labels["code"] != "200" || got[1].Value != 1e6 {
		t.Errorf("got %+v", got)
	}
	if _, err := ParseMetric(strings.NewReader(`requests{verb="GET"} many`), "requests"); err == nil {
		t.Error("a value that is no number was accepted")
	}
}
