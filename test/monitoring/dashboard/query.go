package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Span is the time range that is drawn, and the interval between samples.
type Span struct {
	From, To time.Time
	Step     time.Duration
}

// Sample is a value at a time.
type Sample struct {
	At    time.Time
	Value float64
}

// Series is a line. Its samples are in order of time, without those that are not a number (a
// quantile of no observations).
type Series struct {
	// Query is the RefID of the target that returned it.
	Query   string
	Name    string
	Samples []Sample
}

// Data is the series of all panels, by panel id.
type Data map[int][]Series

// Prometheus is a client of a Prometheus server.
type Prometheus struct {
	// URL of the server, such as http://127.0.0.1:9090.
	URL string
}

// QueryPanels sends the queries of all panels. A query may return no series. If the server is
// unreachable or refuses a query, the error names the panel.
func (s Prometheus) QueryPanels(ctx context.Context, d *Dashboard, span Span) (Data, error) {
	data := Data{}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			series, err := s.Query(ctx, t, span)
			if err != nil {
				return nil, fmt.Errorf("panel %q, query %s: %w", p.Title, t.RefID, err)
			}
			data[p.ID] = append(data[p.ID], series...)
		}
	}
	return data, nil
}

// Query sends one query and returns the series that have at least one number.
func (s Prometheus) Query(ctx context.Context, t Target, span Span) ([]Series, error) {
	answer, err := s.get(ctx, t.Expr, span)
	if err != nil {
		return nil, err
	}
	var out []Series
	for _, r := range answer {
		series, err := r.series(t)
		if err != nil {
			return nil, err
		}
		if len(series.Samples) > 0 {
			out = append(out, series)
		}
	}
	return out, nil
}

// Missing describes the queries that returned no series, with their panels.
func (d *Dashboard) Missing(data Data) []string {
	var out []string
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			if !slices.ContainsFunc(data[p.ID], func(s Series) bool { return s.Query == t.RefID }) {
				out = append(out, fmt.Sprintf("%s (query %s: %s)", p.Title, t.RefID, t.Expr))
			}
		}
	}
	return out
}

// Last returns the last value of the first series of the panel with this title. It returns an error
// if there is no such panel or if it has no series.
func (d *Dashboard) Last(data Data, title string) (float64, error) {
	for _, p := range d.Panels {
		if p.Title == title && len(data[p.ID]) > 0 {
			samples := data[p.ID][0].Samples
			return samples[len(samples)-1].Value, nil
		}
	}
	return 0, fmt.Errorf("no panel %q has data", title)
}

// result is a series in the server's response. Its samples are pairs of seconds and a quoted
// number.
type result struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

func (r result) series(t Target) (Series, error) {
	out := Series{Query: t.RefID, Name: t.seriesName(r.Metric)}
	for _, pair := range r.Values {
		seconds, isNumber := pair[0].(float64)
		text, isText := pair[1].(string)
		if !isNumber || !isText {
			return out, fmt.Errorf("the server returned the sample %v", pair)
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return out, fmt.Errorf("the server returned the sample %v: %w", pair, err)
		}
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			out.Samples = append(out.Samples, Sample{time.UnixMilli(int64(math.Round(seconds * 1000))), value})
		}
	}
	return out, nil
}

func (s Prometheus) get(ctx context.Context, expr string, span Span) ([]result, error) {
	seconds := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	form := url.Values{
		"query": {expr}, "start": {seconds(span.From)}, "end": {seconds(span.To)},
		"step": {strconv.FormatFloat(span.Step.Seconds(), 'f', 3, 64)},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/query_range?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // the body is only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", s.URL, err)
	}
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []result `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("query %s: %s: %w", s.URL, response.Status, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("the server returned %s: %s", response.Status, answer.Error)
	}
	return answer.Data.Result, nil
}
