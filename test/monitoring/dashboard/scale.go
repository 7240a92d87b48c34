package dashboard

import (
	"math"
	"strconv"
)

// unitScale is a multiple of a base unit, and its suffix.
type unitScale struct {
	factor float64
	suffix string
}

// units are the units of Grafana that the dashboard uses, each with its scales from the largest to
// the smallest.
var units = map[string][]unitScale{
	"s":           {{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}},
	"percentunit": {{0.01, "%"}},
	"reqps":       {{1e3, "k req/s"}, {1, " req/s"}},
	"ops":         {{1e3, "k ops/s"}, {1, " ops/s"}},
	"wps":         {{1e3, "k wr/s"}, {1, " wr/s"}},
	"short":       {{1e9, " Bil"}, {1e6, " Mil"}, {1e3, " K"}, {1, ""}},
}

// IsKnownUnit reports whether Format supports a unit. The empty unit is a plain number.
func IsKnownUnit(unit string) bool { return unit == "" || units[unit] != nil }

// Format returns a value with its unit in a suitable scale, with three significant digits. An
// unknown unit is appended to the number.
func Format(unit string, value float64) string {
	s := scaleOf(unit, value)
	return number(value/s.factor, 3) + s.suffix
}

// scaleOf returns the largest scale that the value reaches, or the smallest one. Zero has the scale
// of the base unit.
func scaleOf(unit string, value float64) unitScale {
	scales, ok := units[unit]
	if !ok {
		suffix := ""
		if unit != "" {
			suffix = " " + unit
		}
		return unitScale{1, suffix}
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

// number formats a value with this many significant digits, without trailing zeros and without an
// exponent.
func number(value float64, digits int) string {
	if value == 0 {
		return "0"
	}
	after := digits - 1 - int(math.Floor(math.Log10(math.Abs(value))))
	power := math.Pow(10, float64(after))
	return strconv.FormatFloat(math.Round(value*power)/power, 'f', -1, 64)
}

// axis goes from low to high with a label at each multiple of step.
type axis struct {
	low, high, step float64
	label           func(float64) string
}

// newAxis returns an axis for values between low and high, with about the wanted number of steps of
// a round size.
func newAxis(unit string, low, high float64, wanted int) axis {
	if high <= low {
		high = low + 1 // all values are equal
	}
	// Steps are round in the scale of the labels: five minutes rather than 100 seconds.
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

// ticks returns the values that have a label.
func (a axis) ticks() []float64 {
	var out []float64
	for i := 0; a.low+float64(i)*a.step <= a.high+a.step/2; i++ {
		out = append(out, a.low+float64(i)*a.step)
	}
	return out
}

// fraction returns the position of a value between low (0) and high (1).
func (a axis) fraction(value float64) float64 {
	return min(max((value-a.low)/(a.high-a.low), 0), 1)
}
