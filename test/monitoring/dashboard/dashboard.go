// Package dashboard shows a Grafana dashboard without Grafana: it reads the dashboard's JSON, asks a Prometheus server what its panels ask,
// and draws the whole as one SVG. It knows what deploy/monitoring/dashboard.json uses of Grafana's format: rows, stat and time series
// panels, units, thresholds and mappings of values.
package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
)

// The kinds of panel that can be drawn.
const (
	Row        = "row"
	Stat       = "stat"
	TimeSeries = "timeseries"
)

// Columns is the width of a dashboard on its grid.
const Columns = 24

// Dashboard is a title and panels on a grid.
type Dashboard struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is a part of the dashboard: a heading across all of it (Row), a number (Stat) or lines over time (TimeSeries).
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Grid        Grid        `json:"gridPos"`
	Targets     []Target    `json:"targets"`
	Field       FieldConfig `json:"fieldConfig"`
}

// Grid is where a panel is. A unit of X and W is a column; one of Y and H is of a fixed height.
type Grid struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// Target is a query and the name of its series, in which {{label}} stands for the value of a label.
type Target struct {
	RefID  string `json:"refId"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// FieldConfig is how values are shown.
type FieldConfig struct {
	Defaults struct {
		Unit       string     `json:"unit"`
		Min        *float64   `json:"min"`
		Max        *float64   `json:"max"`
		Mappings   []Mapping  `json:"mappings"`
		Thresholds Thresholds `json:"thresholds"`
	} `json:"defaults"`
}

// Mapping gives values a text of their own.
type Mapping struct {
	Type    string `json:"type"`
	Options map[string]struct {
		Text  string `json:"text"`
		Color string `json:"color"`
	} `json:"options"`
}

// Thresholds choose the colour of a value: that of the last step it reaches. The first step has no value.
type Thresholds struct {
	Steps []struct {
		Value *float64 `json:"value"`
		Color string   `json:"color"`
	} `json:"steps"`
}

// Read reads a dashboard. It fails when the JSON cannot be read, when a panel is of a kind that cannot be drawn, leaves the grid or asks nothing,
// and when a query has a Grafana variable, which only Grafana could fill in.
func Read(r io.Reader) (*Dashboard, error) {
	var d Dashboard
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	for _, p := range d.Panels {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("panel %d (%s): %w", p.ID, p.Title, err)
		}
	}
	return &d, nil
}

func (p Panel) check() error {
	if g := p.Grid; g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > Columns {
		return fmt.Errorf("it is not on the grid of %d columns: %+v", Columns, g)
	}
	switch p.Type {
	case Row:
		return nil
	case Stat, TimeSeries:
	default:
		return fmt.Errorf("panels of type %q cannot be drawn here; teach test/monitoring/dashboard or use %s or %s", p.Type, Stat, TimeSeries)
	}
	if len(p.Targets) == 0 {
		return fmt.Errorf("it has no query")
	}
	for _, t := range p.Targets {
		if variable := variables.FindString(t.Expr); variable != "" {
			return fmt.Errorf("query %s has the variable %s, which only Grafana can fill in", t.RefID, variable)
		}
	}
	return nil
}

// variables are $name, ${name} and [[name]]; label_replace's $1 is none.
var variables = regexp.MustCompile(`\$\{|\$[A-Za-z_]\w*|\[\[`)

// placeholder is a label in the name of a series.
var placeholder = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// name is what the legend calls a series.
func (t Target) name(labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(t.Legend, func(found string) string {
		return labels[placeholder.FindStringSubmatch(found)[1]]
	})
}

// text is how a panel shows a value: as its mappings say, or with its unit.
func (p Panel) text(value float64) string {
	for _, m := range p.Field.Defaults.Mappings {
		if to, ok := m.Options[fmt.Sprint(value)]; ok && m.Type == "value" && to.Text != "" {
			return to.Text
		}
	}
	return Format(p.Field.Defaults.Unit, value)
}

// colour is Grafana's name of a value's colour, "" where the panel does not say.
func (p Panel) colour(value float64) string {
	for _, m := range p.Field.Defaults.Mappings {
		if to, ok := m.Options[fmt.Sprint(value)]; ok && m.Type == "value" && to.Color != "" {
			return to.Color
		}
	}
	colour := ""
	for _, step := range p.Field.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			colour = step.Color
		}
	}
	return colour
}
