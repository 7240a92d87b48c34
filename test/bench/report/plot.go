package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Sizes in the plot, in pixels.
const (
	plotWidth   = 960
	labelWidth  = 440
	barHeight   = 14
	groupGap    = 10
	titleHeight = 56
	footHeight  = 34
)

// colours of the peers' bars, in order. They can be distinguished in greyscale, too.
var colours = []string{"#1f77b4", "#ff9f40", "#4b8f4b"}

// WritePlot draws the ratios of all rows that have one, as bars on a logarithmic scale around 1.
// Bars left of the line mean that Seamark's value is smaller, bars right of it that it is larger.
func (r *Report) WritePlot(w io.Writer) error {
	type bar struct {
		row, peer int
		ratio     float64
	}
	var bars []bar
	largest := 2.0
	groups := 0
	for i, row := range r.Rows {
		before := len(bars)
		for p := range r.Peers {
			if ratio := row.Ratio(p); ratio != 0 {
				bars = append(bars, bar{i, p, ratio})
				largest = max(largest, ratio, 1/ratio)
			}
		}
		if len(bars) > before {
			groups++
		}
	}
	span := math.Ceil(math.Log2(largest)/4) * 4 // so that 1 is one of the ticks
	height := titleHeight + footHeight + len(bars)*barHeight + groups*groupGap
	half := float64(plotWidth-labelWidth-70) / 2
	middle := float64(labelWidth) + half
	x := func(ratio float64) float64 { return middle + math.Log2(ratio)/span*half }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	writeText(&b, 10, 20, "start", "bold", r.Title)
	for p, peer := range r.Peers {
		left := 10 + p*220
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="10" height="10" fill="%s"/>`+"\n", left, colours[p%len(colours)])
		writeText(&b, float64(left+16), 41, "start", "normal", "ratio to "+peer)
	}
	const ticks = 4 // on each side of 1
	for power := -span; power <= span; power += math.Ceil(span / ticks) {
		at := x(math.Pow(2, power))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ccc"/>`+"\n", at, titleHeight-4, at, height-footHeight)
		writeText(&b, at, float64(height-footHeight+16), "middle", "normal", tickLabel(power))
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#555"/>`+"\n", middle, titleHeight-4, middle, height-footHeight)
	y, last := float64(titleHeight), -1
	for _, bar := range bars {
		row := r.Rows[bar.row]
		if bar.row != last {
			if last >= 0 {
				y += groupGap
			}
			last = bar.row
			weight := "normal"
			if row.Over {
				weight = "bold"
			}
			name := row.Name
			if row.Faster {
				name += " (times faster)"
			}
			writeText(&b, float64(labelWidth-8), y+barHeight-3, "end", weight, name)
		}
		from, to := min(x(bar.ratio), middle), max(x(bar.ratio), middle)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n",
			from, y+1, max(to-from, 1), barHeight-2, colours[bar.peer%len(colours)])
		writeText(&b, to+4, y+barHeight-3, "start", "normal", times(bar.ratio))
		y += barHeight
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// tickLabel returns the label of a power of two: 8 ×, 1/8 ×.
func tickLabel(power float64) string {
	if power < 0 {
		return fmt.Sprintf("1/%.0f ×", math.Pow(2, -power))
	}
	return fmt.Sprintf("%.0f ×", math.Pow(2, power))
}

// writeText writes a text element.
func writeText(b *strings.Builder, x, y float64, anchor, weight, content string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s">`, x, y, anchor, weight)
	_ = xml.EscapeText(b, []byte(content)) // writing to a strings.Builder cannot fail
	b.WriteString("</text>\n")
}
