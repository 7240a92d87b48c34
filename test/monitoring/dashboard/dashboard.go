// Package dashboard draws a Grafana dashboard without Grafana: it reads the dashboard's JSON, sends
// the queries of its panels to a Prometheus server, and draws all panels as one SVG. It supports
// what deploy/monitoring/dashboard.json uses of Grafana's format: rows, stat and time series
// panels, units, thresholds and value mappings.
package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
)

// The supported types of panels.
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

// Panel is a part of the dashboard: a heading (Row), a number (Stat) or lines over time
// (TimeSeries).
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Grid        Grid        `json:"gridPos"`
	Targets     []Target    `json:"targets"`
	Field       FieldConfig `json:"fieldConfig"`
}

// Grid is the position and size of a panel. X and W are in columns, Y and H in rows of a fixed
// height.
type Grid struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// Target is a query and the legend of its series, in which {{label}} is replaced by the value of
// the label.
type Target struct {
	RefID  string `json:"refId"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// FieldConfig says how values are displayed.
type FieldConfig struct {
	Defaults struct {
		Unit       string     `json:"unit"`
		Min        *float64   `json:"min"`
		Max        *float64   `json:"max"`
		Mappings   []Mapping  `json:"mappings"`
		Thresholds Thresholds `json:"thresholds"`
	} `json:"defaults"`
}

// Mapping replaces values by texts.
type Mapping struct {
	Type    string `json:"type"`
	Options map[string]struct {
		Text  string `json:"text"`
		Color string `json:"color"`
	} `json:"options"`
}

// Thresholds select the colour of a value: that of the last step that it reaches. The first step
// has no value.
type Thresholds struct {
	Steps []struct {
		Value *float64 `json:"value"`
		Color string   `json:"color"`
	} `json:"steps"`
}

// Read reads a dashboard. It returns an error if the JSON is invalid, if a panel has an unsupported
// type, is outside the grid or has no query, and if a query uses a Grafana variable, which only
// Grafana can replace.
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
		return fmt.Errorf("panels of type %q are not supported; add them to test/monitoring/dashboard or use %s or %s", p.Type, Stat, TimeSeries)
	}
	if len(p.Targets) == 0 {
		return fmt.Errorf("it has no query")
	}
	for _, t := range p.Targets {
		if variable := variables.FindString(t.Expr); variable != "" {
			return fmt.Errorf("query %s has the variable %s, which only Grafana can replace", t.RefID, variable)
		}
	}
	return nil
}

// variables matches $name, ${name} and [[name]], but not the $1 of label_replace.
var variables = regexp.MustCompile(`\$\{|\$[A-Za-z_]\w*|\[\[`)

// placeholder matches a label in a legend.
var placeholder = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// seriesName returns the legend of a series.
func (t Target) seriesName(labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(t.Legend, func(found string) string {
		return labels[placeholder.FindStringSubmatch(found)[1]]
	})
}

// text returns a value as the panel displays it: by its mappings, or with its unit.
func (p Panel) text(value float64) string {
	for _, m := range p.Field.Defaults.Mappings {
		if to, ok := m.Options[fmt.Sprint(value)]; ok && m.Type == "value" && to.Text != "" {
			return to.Text
		}
	}
	return Format(p.Field.Defaults.Unit, value)
}

// colour returns Grafana's name of a value's colour, or "" if the panel has none.
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
