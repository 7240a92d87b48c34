package dashboard

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

const small = `{
  "title": "Ships & <harbours>",
  "panels": [
    {"id": 1, "type": "row", "title": "Sea", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}},
    {"id": 2, "type": "stat", "title": "Heard", "gridPos": {"x": 0, "y": 1, "w": 4, "h": 4},
     "fieldConfig": {"defaults": {"unit": "short",
       "mappings": [{"type": "value", "options": {"1": {"text": "yes", "color": "green"}}}],
       "thresholds": {"steps": [{"value": null, "color": "red"}, {"value": 5, "color": "blue"}]}}},
     "targets": [{"refId": "A", "expr": "min(heard)"}]},
    {"id": 3, "type": "timeseries", "title": "Waves", "gridPos": {"x": 4, "y": 1, "w": 12, "h": 7},
     "fieldConfig": {"defaults": {"unit": "s", "min": 0}},
     "targets": [{"refId": "A", "expr": "label_replace(waves, \"a\", \"$1\", \"b\", \"(.+)\")", "legendFormat": "{{ sea }} \"{{kind}}\""},
                 {"refId": "B", "expr": "tides", "legendFormat": "tides"}]}
  ]
}`

func readSmall(t *testing.T) *Dashboard {
	t.Helper()
	d, err := Read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRead(t *testing.T) {
	d := readSmall(t)
	if d.Title != "Ships & <harbours>" || len(d.Panels) != 3 {
		t.Fatalf("%+v", d)
	}
	waves := d.Panels[2]
	defaults := waves.Field.Defaults
	if waves.Grid != (Grid{4, 1, 12, 7}) || defaults.Unit != "s" || *defaults.Min != 0 || defaults.Max != nil {
		t.Errorf("%+v", waves)
	}
	if name := waves.Targets[0].seriesName(map[string]string{"sea": "north", "kind": "high"}); name != `north "high"` {
		t.Errorf("the legend is %q", name)
	}
	heard := d.Panels[1]
	for value, want := range map[float64][2]string{0: {"0", "red"}, 1: {"yes", "green"}, 7: {"7", "blue"}} {
		if text, colour := heard.text(value), heard.colour(value); text != want[0] || colour != want[1] {
			t.Errorf("%v is shown as %s in %s, want %v", value, text, colour, want)
		}
	}
}

func TestReadRefusesUnsupportedDashboards(t *testing.T) {
	for want, panel := range map[string]string{
		"grid":        `{"type": "stat", "gridPos": {"x": 20, "w": 5, "h": 1}, "targets": [{"expr": "up"}]}`,
		"heatmap":     `{"type": "heatmap", "gridPos": {"w": 5, "h": 1}, "targets": [{"expr": "up"}]}`,
		"no query":    `{"type": "stat", "gridPos": {"w": 5, "h": 1}}`,
		"$__interval": `{"type": "stat", "gridPos": {"w": 5, "h": 1}, "targets": [{"expr": "rate(x[$__interval])"}]}`,
		"invalid":     `{`,
	} {
		if _, err := Read(strings.NewReader(`{"panels": [` + panel + `]}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", panel, err)
		}
	}
}

// prometheus returns a fake server: one query returns numbers, one only values that are not
// numbers, and the others nothing.
func prometheus(t *testing.T) Prometheus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/api/v1/query_range" || query.Get("start") != "1000.000" || query.Get("end") != "1010.000" ||
			query.Get("step") != "2.000" {
			t.Errorf("the request is %s", r.URL)
		}
		result := ""
		switch expr := query.Get("query"); {
		case expr == "refused":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status": "error", "error": "parse error"}`)
			return
		case strings.Contains(expr, "waves"):
			result = `{"metric": {"sea": "north", "kind": "a<b&c"}, "values": [[1000, "0.5"], [1002, "NaN"], [1004.5, "+Inf"], [1006, "1.5"]]}`
		case expr == "tides":
			result = `{"metric": {}, "values": [[1000, "NaN"]]}`
		}
		fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "matrix", "result": [%s]}}`, result)
	}))
	t.Cleanup(server.Close)
	return Prometheus{URL: server.URL}
}

var tenSeconds = Span{From: time.Unix(1000, 0), To: time.Unix(1010, 0), Step: 2 * time.Second}

func TestQueryPanels(t *testing.T) {
	d := readSmall(t)
	data, err := prometheus(t).QueryPanels(t.Context(), d, tenSeconds)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{{time.Unix(1000, 0), 0.5}, {time.Unix(1006, 0), 1.5}}
	if len(data[3]) != 1 || data[3][0].Name != `north "a<b&c"` || data[3][0].Query != "A" ||
		!slices.Equal(data[3][0].Samples, want) {
		t.Errorf("%+v", data[3])
	}
	missing := d.Missing(data)
	if len(missing) != 2 || !strings.HasPrefix(missing[0], "Heard (query A: min(heard)") ||
		!strings.HasPrefix(missing[1], "Waves (query B: tides") {
		t.Errorf("missing: %q", missing)
	}
}

func TestLast(t *testing.T) {
	d := readSmall(t)
	data, err := prometheus(t).QueryPanels(t.Context(), d, tenSeconds)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := d.Last(data, "Waves"); err != nil || value != 1.5 {
		t.Error(value, err)
	}
	for _, title := range []string{"Heard", "Tides"} {
		if value, err := d.Last(data, title); err == nil {
			t.Errorf("%s shows %v", title, value)
		}
	}
}

func TestErrorOfRefusedQueryNamesItsPanel(t *testing.T) {
	d := readSmall(t)
	d.Panels[1].Targets[0].Expr = "refused"
	_, err := prometheus(t).QueryPanels(t.Context(), d, tenSeconds)
	if err == nil || !strings.Contains(err.Error(), `"Heard"`) || !strings.Contains(err.Error(), "parse error") {
		t.Error(err)
	}
}

// texts returns the texts and the number of elements of a drawing, which must be well-formed XML.
func texts(t *testing.T, drawing []byte) (words []string, elements map[string]int) {
	t.Helper()
	elements = map[string]int{}
	decoder := xml.NewDecoder(bytes.NewReader(drawing))
	inside := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return words, elements
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, drawing)
		}
		switch e := token.(type) {
		case xml.StartElement:
			elements[e.Name.Local]++
			inside = e.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				words = append(words, string(e))
			}
		}
	}
}

func TestDraw(t *testing.T) {
	d := readSmall(t)
	data := Data{
		2: {{Query: "A", Samples: []Sample{{time.Unix(1000, 0), 0}, {time.Unix(1010, 0), 1}}}},
		3: {
			{Query: "A", Name: `"a<b&c"`, Samples: []Sample{{time.Unix(1000, 0), 0.5}, {time.Unix(1006, 0), 1.5}}},
			{Query: "B", Name: "tides", Samples: []Sample{{time.Unix(1004, 0), 1}}},
		},
	}
	var drawing bytes.Buffer
	if err := Draw(&drawing, d, data, tenSeconds); err != nil {
		t.Fatal(err)
	}
	words, elements := texts(t, drawing.Bytes())
	for _, want := range []string{"Ships & <harbours>", "▾ Sea", "Heard", "yes", "Waves", `"a<b&c"`, "tides", "0 s", "1.5 s", "10 s"} {
		if !slices.Contains(words, want) {
			t.Errorf("%q is not in the drawing: %q", want, words)
		}
	}
	if slices.Contains(words, "no data") || elements["polyline"] != 1 || elements["circle"] != 1 {
		t.Errorf("%q with %v", words, elements)
	}
}

func TestDrawWithoutData(t *testing.T) {
	var drawing bytes.Buffer
	if err := Draw(&drawing, readSmall(t), nil, tenSeconds); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, drawing.Bytes())
	if n := strings.Count(strings.Join(words, "\n"), "no data"); n != 2 {
		t.Errorf("%d of 2 panels show that they have no data: %q", n, words)
	}
	if !strings.Contains(drawing.String(), `fill="`+namedColours["red"]+`">no data`) {
		t.Error("it is not red")
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		unit  string
		value float64
		want  string
	}{
		{"s", 0, "0 s"}, {"s", 0.00000512, "5.12 µs"}, {"s", 0.0123456, "12.3 ms"}, {"s", 2, "2 s"},
		{"s", 90, "1.5 min"}, {"s", 7200, "2 h"},
		{"percentunit", 0.5, "50%"}, {"percentunit", 0.0000153, "0.00153%"}, {"percentunit", 0, "0%"},
		{"reqps", 0.25, "0.25 req/s"}, {"reqps", 51234, "51.2k req/s"}, {"ops", 3, "3 ops/s"},
		{"short", 0, "0"}, {"short", 12, "12"}, {"short", 1234, "1.23 K"}, {"short", -2500000, "-2.5 Mil"},
		{"", 7, "7"}, {"knots", 7, "7 knots"},
	} {
		if got := Format(c.unit, c.value); got != c.want {
			t.Errorf("%v in %q is %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		unit      string
		low, high float64
		want      string
	}{
		{"short", 0, 0, "0|0.5|1"},
		{"short", 0, 7, "0|2|4|6|8"},
		{"s", 0, 0.0031, "0 ms|1 ms|2 ms|3 ms|4 ms"},
		{"s", 0, 0.83, "0 s|0.5 s|1 s"},
		{"s", 0, 60, "0 s|20 s|40 s|60 s"},
		{"s", 0, 400, "0 min|2 min|4 min|6 min|8 min"},
		{"percentunit", 0, 0.00012, "0%|0.005%|0.01%|0.015%"},
		{"short", 95, 105, "95|100|105"},
	} {
		a := newAxis(c.unit, c.low, c.high, 4)
		var labels []string
		for _, tick := range a.ticks() {
			labels = append(labels, a.label(tick))
		}
		if got := strings.Join(labels, "|"); got != c.want {
			t.Errorf("%v to %v %s: %s, want %s", c.low, c.high, c.unit, got, c.want)
		}
	}
}

func TestLegendHasAtMostThreeLines(t *testing.T) {
	var many []Series
	for i := range 40 {
		many = append(many, Series{Name: fmt.Sprintf("a series of the number %d", i)})
	}
	rows := legendOf(many, 400)
	last := rows[len(rows)-1]
	if len(rows) != 3 || !strings.HasPrefix(last[len(last)-1].name, "and ") {
		t.Errorf("%+v", rows)
	}
	shown := 0
	for _, row := range rows {
		shown += len(row)
	}
	if want := fmt.Sprintf("and %d more", len(many)-shown+1); last[len(last)-1].name != want {
		t.Errorf("the last entry is %q, want %q", last[len(last)-1].name, want)
	}
}

// The dashboard that is installed in clusters can be drawn, with all its units.
func TestDashboardOfThisRepository(t *testing.T) {
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(root, "deploy", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if !IsKnownUnit(p.Field.Defaults.Unit) {
			t.Errorf("panel %q has the unit %q, which would be drawn wrongly", p.Title, p.Field.Defaults.Unit)
		}
		if p.Type == Stat && len(p.Field.Defaults.Thresholds.Steps) == 0 {
			t.Errorf("panel %q has no thresholds: the defaults of Grafana are red from 80", p.Title)
		}
	}
}
