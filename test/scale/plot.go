package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// exponent returns by which power of the number a value grows: the slope of the line that fits best
// on logarithmic scales. It is 0 if that is not defined.
func exponent(points []point) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		if p.value <= 0 {
			continue
		}
		x, y := math.Log(float64(p.number)), math.Log(p.value)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d > 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}

// Sizes in a plot, in pixels.
const (
	plotWidth, plotHeight  = 320, 200
	plotLeft, plotTop      = 56, 34
	plotRight, plotBottom  = 16, 34
	plotsPerRow            = 3
	plotTicks, labelHeight = 4, 4
)

// writePlots writes into a folder scale-members.svg and scale-services.svg, all values by the
// number of members and of services, and scale-recovery.svg, what was recorded each second.
func (m *measurement) writePlots(dir string) error {
	var bySecond []chart
	for _, s := range m.series {
		c := chart{title: s.name, x: "seconds", ys: s.values}
		for i := range s.values {
			c.xs = append(c.xs, float64(i))
		}
		bySecond = append(bySecond, c)
	}
	errs := []error{os.MkdirAll(dir, 0o755)}
	for name, charts := range map[string][]chart{
		"scale-members.svg": m.byMembers.charts("members"), "scale-services.svg": m.byServices.charts("services"), "scale-recovery.svg": bySecond,
	} {
		if len(charts) > 0 {
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(draw(charts)), 0o644))
		}
	}
	return errors.Join(errs...)
}

// charts returns the values of which there are several.
func (v values) charts(x string) (out []chart) {
	for _, name := range v.names {
		points := v.points[name]
		if len(points) < 2 {
			continue
		}
		c := chart{title: strings.TrimSpace(name + " " + points[0].unit), x: x}
		for _, p := range points {
			c.xs, c.ys = append(c.xs, float64(p.number)), append(c.ys, p.value)
		}
		out = append(out, c)
	}
	return out
}

// chart is one line with axes from zero.
type chart struct {
	title, x string
	xs, ys   []float64
}

// draw returns several charts as one SVG image.
func draw(charts []chart) string {
	rows := (len(charts) + plotsPerRow - 1) / plotsPerRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`+"\n",
		plotsPerRow*plotWidth, rows*plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotsPerRow*plotWidth, rows*plotHeight)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i%plotsPerRow*plotWidth, i/plotsPerRow*plotHeight)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c chart) draw(b *strings.Builder) {
	maxX, maxY := 1e-9, 1e-9
	for i := range c.xs {
		maxX, maxY = max(maxX, c.xs[i]), max(maxY, c.ys[i])
	}
	const right, bottom = plotWidth - plotRight, plotHeight - plotBottom
	x := func(v float64) float64 { return plotLeft + v/maxX*(right-plotLeft) }
	y := func(v float64) float64 { return bottom - v/maxY*(bottom-plotTop) }
	text(b, 8, 16, "start", c.title)
	text(b, right, plotHeight-6, "end", c.x)
	for i := range plotTicks + 1 {
		part := float64(i) / plotTicks
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", plotLeft, y(part*maxY), right, y(part*maxY))
		text(b, plotLeft-6, y(part*maxY)+labelHeight, "end", fmt.Sprintf("%.3g", part*maxY))
		text(b, x(part*maxX), bottom+14, "middle", fmt.Sprintf("%.3g", part*maxX))
	}
	var line []string
	for i := range c.xs {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(c.xs[i]), y(c.ys[i])))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#1f77b4" stroke-width="1.5"/>`+"\n", strings.Join(line, " "))
	if c.x == "seconds" {
		return
	}
	for i := range c.xs {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="#1f77b4"/>`+"\n", x(c.xs[i]), y(c.ys[i]))
	}
}

func text(b *strings.Builder, x, y float64, anchor, content string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(content)) // writing to a strings.Builder cannot fail
	b.WriteString("</text>\n")
}
