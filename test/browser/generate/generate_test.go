package generate_test

import (
	"testing"

	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/test/browser/generate"
)

// What is made up has the trouble that was asked for, and no other.
func TestTroubleIsAsAskedFor(t *testing.T) {
	f := generate.New(30, 8, 10)
	f.Refresh(f.All()...)
	codes := map[string]int{}
	for _, row := range f.Snapshot(1).Rows {
		for _, g := range row.Groups {
			codes[g.Code]++
		}
		if (row.Verdict == state.OK) != (len(row.Groups) == 0) {
			t.Errorf("%+v", row)
		}
	}
	if len(codes) != 3 || codes["import-missing"] != 1 || codes["port-conflict"] != 1 || codes["endpoints-behind"] != 1 {
		t.Errorf("%v", codes)
	}
}
