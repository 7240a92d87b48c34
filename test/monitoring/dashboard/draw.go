package dashboard

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels.
const (
	columnWidth = 50
	rowHeight   = 30
	margin      = 10
	gap         = 6  // between panels
	headHeight  = 44 // the dashboard's title

	titleSize  = 13
	labelSize  = 11
	legendLine = 16
	axisWidth  = 64
)

// The colours of lines, in order, and those that Grafana has a name for.
var (
	lineColours  = []string{"#1f77b4", "#e6862a", "#3a8f3a", "#b8372e", "#7d5ba6", "#8c6d53", "#c95fa5", "#6f6f6f"}
	namedColours = map[string]string{
		"green": "#2f8f46", "orange": "#d9822b", "yellow": "#b58a00", "red": "#c4302b", "blue": "#1f60c4", "text": "#222222",
	}
)

// canvas collects SVG.
type canvas struct{ strings.Builder }

// box is a rectangle in pixels.
type box struct{ x, y, w, h float64 }

// Draw writes the dashboard with its data as one SVG. Panels without data show "no data" in red.
func Draw(w io.Writer, d *Dashboard, data Data, span Span) error {
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.Grid.Y+p.Grid.H)
	}
	width, height := Columns*columnWidth+2*margin, bottom*rowHeight+headHeight+margin
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n",
		width, height, labelSize)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="#f4f5f5"/>`+"\n", width, height)
	c.text(margin+gap, 28, style{size: 18, bold: true}, d.Title)
	subtitle := fmt.Sprintf("%s of data, a sample every %s", span.To.Sub(span.From).Round(span.Step), span.Step)
	c.text(float64(width-margin-gap), 28, style{anchor: "end", colour: "#666666"}, subtitle)
	for _, p := range d.Panels {
		c.panel(p, data[p.ID], span)
	}
	c.WriteString("</svg>\n")
	_, err := io.WriteString(w, c.String())
	return err
}

func (c *canvas) panel(p Panel, series []Series, span Span) {
	at := box{
		x: float64(margin + p.Grid.X*columnWidth), y: float64(headHeight + p.Grid.Y*rowHeight),
		w: float64(p.Grid.W * columnWidth), h: float64(p.Grid.H * rowHeight),
	}
	if p.Type == Row {
		c.text(at.x+gap, at.y+at.h-9, style{size: 14, bold: true, colour: "#444444"}, "▾ "+p.Title)
		return
	}
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="white" stroke="#d5d7da"/>`+"\n",
		at.x+gap/2, at.y+gap/2, at.w-gap, at.h-gap)
	c.text(at.x+gap+6, at.y+gap+16, style{size: titleSize, bold: true}, clip(p.Title, at.w-2*gap-12, titleSize))
	inner := box{x: at.x + gap + 6, y: at.y + gap + 24, w: at.w - 2*gap - 12, h: at.h - 2*gap - 28}
	switch {
	case len(series) == 0:
		red := style{size: 15, bold: true, anchor: "middle", colour: namedColours["red"]}
		c.text(inner.x+inner.w/2, inner.y+inner.h/2+4, red, "no data")
	case p.Type == Stat:
		c.stat(p, series, inner)
	default:
		c.lines(p, series, inner, span)
	}
}

// stat draws the last value of each series as a big number, side by side.
func (c *canvas) stat(p Panel, series []Series, at box) {
	width := at.w / float64(len(series))
	for i, s := range series {
		value := s.Samples[len(s.Samples)-1].Value
		colour := namedColours[p.colour(value)]
		if colour == "" {
			colour = namedColours["text"]
		}
		middle := at.x + (float64(i)+0.5)*width
		c.text(middle, at.y+at.h/2+13, style{size: 36, bold: true, anchor: "middle", colour: colour}, p.text(value))
		if s.Name != "" {
			c.text(middle, at.y+at.h-2, style{anchor: "middle", colour: "#666666"}, clip(s.Name, width, labelSize))
		}
	}
}

// lines draws series over time: axes, lines, and the legend below.
func (c *canvas) lines(p Panel, series []Series, at box, span Span) {
	legend := legendOf(series, at.w)
	plot := box{x: at.x + axisWidth, y: at.y + 4, w: at.w - axisWidth - 6, h: at.h - 24 - float64(len(legend)*legendLine)}
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, sample := range s.Samples {
			low, high = min(low, sample.Value), max(high, sample.Value)
		}
	}
	if limit := p.Field.Defaults.Min; limit != nil {
		low = *limit
	}
	if limit := p.Field.Defaults.Max; limit != nil {
		high = *limit
	}
	y := newAxis(p.Field.Defaults.Unit, low, high, 4)
	for _, tick := range y.ticks() {
		height := plot.y + plot.h*(1-y.fraction(tick))
		fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e4e5e7"/>`+"\n", plot.x, height, plot.x+plot.w, height)
		c.text(plot.x-6, height+4, style{anchor: "end", colour: "#555555"}, y.label(tick))
	}
	seconds := span.To.Sub(span.From).Seconds()
	x := newAxis("s", 0, seconds, 4)
	for _, tick := range x.ticks() {
		if tick <= seconds {
			c.text(plot.x+plot.w*tick/seconds, plot.y+plot.h+14, style{anchor: "middle", colour: "#555555"}, x.label(tick))
		}
	}
	for i, s := range series {
		var points strings.Builder
		for _, sample := range s.Samples {
			right := plot.x + plot.w*sample.At.Sub(span.From).Seconds()/seconds
			fmt.Fprintf(&points, "%.1f,%.1f ", right, plot.y+plot.h*(1-y.fraction(sample.Value)))
		}
		c.line(strings.TrimSuffix(points.String(), " "), lineColours[i%len(lineColours)])
	}
	for row, entries := range legend {
		for _, e := range entries {
			top := at.y + at.h - float64(len(legend)-row)*legendLine + 8
			left := at.x + e.left
			fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="12" height="3" fill="%s"/>`+"\n", left, top, lineColours[e.series%len(lineColours)])
			c.text(left+16, top+5, style{colour: "#333333"}, e.name)
		}
	}
}

// line draws a line through the points. A single point is drawn as a dot, because a line without
// length is invisible.
func (c *canvas) line(points, colour string) {
	if x, y, ok := strings.Cut(points, ","); ok && !strings.Contains(points, " ") {
		fmt.Fprintf(c, `<circle cx="%s" cy="%s" r="2.5" fill="%s"/>`+"\n", x, y, colour)
		return
	}
	fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round"/>`+"\n", points, colour)
}

// entry is a series in the legend, and its distance from the left edge.
type entry struct {
	series int
	name   string
	left   float64
}

// legendOf arranges the names of series in as few lines as they need, and in three at most. The
// last entry then says how many more there are.
func legendOf(series []Series, width float64) [][]entry {
	const maxLines, mark, space = 3, 16, 14
	rows := [][]entry{nil}
	left := 0.0
	for i, s := range series {
		name := clip(s.Name, width-mark, labelSize)
		needs := mark + widthOf(name, labelSize)
		if left > 0 && left+needs > width {
			if len(rows) == maxLines {
				last := &rows[maxLines-1][len(rows[maxLines-1])-1]
				last.name = fmt.Sprintf("and %d more", len(series)-i+1)
				break
			}
			rows, left = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], entry{i, name, left})
		left += needs + space
	}
	return slices.DeleteFunc(rows, func(row []entry) bool { return len(row) == 0 })
}

// widthOf estimates the width of a text. The actual font depends on the viewer.
func widthOf(text string, size float64) float64 {
	return float64(utf8.RuneCountInString(text)) * size * 0.58
}

// clip shortens a text that would be too wide.
func clip(text string, width, size float64) string {
	if widthOf(text, size) <= width {
		return text
	}
	runes := []rune(text)
	keep := max(int(width/(size*0.58))-1, 0)
	return string(runes[:min(keep, len(runes))]) + "…"
}

// style is the style of a text. Size and colour have defaults; anchor is start, middle or end.
type style struct {
	size           int
	bold           bool
	anchor, colour string
}

func (c *canvas) text(x, y float64, s style, content string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f"`, x, y)
	if s.size != 0 {
		fmt.Fprintf(c, ` font-size="%d"`, s.size)
	}
	if s.bold {
		c.WriteString(` font-weight="bold"`)
	}
	if s.anchor != "" {
		fmt.Fprintf(c, ` text-anchor="%s"`, s.anchor)
	}
	if s.colour != "" {
		fmt.Fprintf(c, ` fill="%s"`, s.colour)
	}
	c.WriteString(">")
	_ = xml.EscapeText(c, []byte(content)) // writing to a strings.Builder cannot fail
	c.WriteString("</text>\n")
}
