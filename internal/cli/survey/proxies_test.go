package survey

import (
	"testing"
)

func TestParseMetrics(t *testing.T) {
	values := parseMetrics("# HELP x y\n# TYPE x gauge\nx{set=\"services\"} 12\nlast 1.7e+09\nbroken\n")
	if len(values) != 2 || values[`x{set="services"}`] != 12 || values["last"] != 1.7e9 {
		t.Errorf("%v", values)
	}
}
