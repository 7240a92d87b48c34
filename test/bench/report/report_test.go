package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[(i*37)%100] = time.Duration(i + 1) // in no order
	}
	for _, test := range []struct {
		part float64
		want time.Duration
	}{{0.5, 50}, {0.99, 99}, {1, 100}, {0, 1}} {
		if got := Percentile(values, test.part); got != test.want {
			t.Errorf("percentile %g: %d, want %d", test.part, got, test.want)
		}
	}
	if got := Percentile(nil, 0.5); got != 0 {
		t.Errorf("percentile of nothing: %d", got)
	}
}

func sample() *Report {
	return &Report{Title: "a < b", Peers: []string{"floor", "peer"}, Rows: []Row{
		{Name: "rate", Value: 90, Unit: "/s", Peers: []float64{100, 45}, Budget: "≥ 0.95 × floor", Over: true, Detail: "because"},
		{Name: "sync", Value: 2, Unit: "ms", Peers: []float64{0, 4000}, Faster: true, Budget: "≥ 100 ×"},
		{Name: "memory", Value: 12.34, Unit: "MiB"},
	}}
}

func TestTables(t *testing.T) {
	var table, markdown bytes.Buffer
	if err := errors.Join(sample().WriteTable(&table), sample().WriteMarkdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.90 ×", "2.00 ×", "OVER", "2000 ×", "12.3 MiB", "- rate: because", "1 budget was MISSED"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &table)
		}
	}
	if want := "| sync | 2 ms |  |  | 4000 ms | 2000 × | ≥ 100 × | ok |\n"; !strings.Contains(markdown.String(), want) {
		t.Errorf("%q is missing in:\n%s", want, &markdown)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var rows []jsonRow
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[0].Ratios["peer"] != 2 || rows[1].Ratios["peer"] != 2000 || rows[1].Peers["floor"] != 0 || rows[2].Peers != nil {
		t.Errorf("%s", &out)
	}
}

// The plot is well-formed XML with a bar for each ratio.
func TestPlot(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WritePlot(&out); err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, &out)
		}
	}
	// The background, two legends, three bars.
	if got := strings.Count(out.String(), "<rect"); got != 6 {
		t.Errorf("%d rectangles in\n%s", got, &out)
	}
	if !strings.Contains(out.String(), "a &lt; b") {
		t.Error("the title is not escaped")
	}
}
