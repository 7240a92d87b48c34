package dashboard

import (
	"math"
	"strconv"
)

// scaled is a unit in which numbers are written, and how many of the base unit it is.
type scaled struct {
	factor float64
	suffix string
}

// units are those of Grafana that the dashboard uses, each from the largest scale to the smallest.
var units = map[string][]scaled{
	"s":           {{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}},
	"percentunit": {{0.01, "%"}},
	"reqps":       {{1e3, "k req/s"}, {1, " req/s"}},
	"ops":         {{1e3, "k ops/s"}, {1, " ops/s"}},
	"wps":         {{1e3, "k wr/s"}, {1, " wr/s"}},
	"short":       {{1e9, " Bil"}, {1e6, " Mil"}, {1e3, " K"}, {1, ""}},
}

// Known tells whether a unit can be written. The empty one is a plain number.
func Known(unit string) bool { return unit == "" || units[unit] != nil }

// Format writes a value with its unit, at the scale that suits it, to three digits. An unknown unit is written after the number.
func Format(unit string, value float64) string {
	s := scaleOf(unit, value)
	return number(value/s.factor, 3) + s.suffix
}

// scaleOf is the largest scale that the value reaches, or the smallest; zero is written in the base unit.
func scaleOf(unit string, value float64) scaled {
	scales, ok := units[unit]
	if !ok {
		suffix := ""
		if unit != "" {
			suffix = " " + unit
		}
		return scaled{1, suffix}
	}
	base := scales[len(scales)-1]
	for _, s := range scales {
		if s.factor == 1 {
			base = s
		}
		if value != 0 && math.Abs(value) >= s.factor {
			return s
		}
	}
	if value == 0 {
		return base
	}
	return scales[len(scales)-1]
}

// number writes a value with so many significant digits, without zeros at the end and without an exponent.
func number(value float64, digits int) string {
	if value == 0 {
		return "0"
	}
	after := digits - 1 - int(math.Floor(math.Log10(math.Abs(value))))
	power := math.Pow(10, float64(after))
	return strconv.FormatFloat(math.Round(value*power)/power, 'f', -1, 64)
}

// axis is a scale of values: from low to high with a label at each multiple of step.
type axis struct {
	low, high, step float64
	label           func(float64) string
}

// newAxis makes the axis for values between low and high, with about as many steps as wanted, of a size that people count in.
func newAxis(unit string, low, high float64, wanted int) axis {
	if high <= low {
		high = low + 1 // a flat line is drawn at the bottom, or where it is
	}
	// A step is round in the scale that labels are written in: minutes are counted in fives, not in hundreds of seconds.
	s := scaleOf(unit, high)
	if s.factor >= 60 && high < 3*s.factor {
		s = scaleOf(unit, s.factor/2) // 30 s rather than 0.5 min
	}
	rough := (high - low) / s.factor / float64(wanted)
	magnitude := math.Pow(10, math.Floor(math.Log10(rough)))
	step := 10 * magnitude
	for _, round := range []float64{1, 2, 5} {
		if round*magnitude >= rough {
			step = round * magnitude
			break
		}
	}
	step *= s.factor
	a := axis{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step, step: step}
	if larger := scaleOf(unit, a.high); larger.factor == 1000*s.factor {
		s = larger // 0.5 s and 1 s rather than 500 ms and 1000 ms
	}
	a.label = func(value float64) string {
		if math.Abs(value) < step/2 {
			return "0" + s.suffix
		}
		return number(value/s.factor, 6) + s.suffix
	}
	return a
}

// ticks are the values that have a label.
func (a axis) ticks() []float64 {
	var out []float64
	for i := 0; a.low+float64(i)*a.step <= a.high+a.step/2; i++ {
		out = append(out, a.low+float64(i)*a.step)
	}
	return out
}

// part is where a value is between low (0) and high (1).
func (a axis) part(value float64) float64 {
	return min(max((value-a.low)/(a.high-a.low), 0), 1)
}
