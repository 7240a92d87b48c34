package generate_test

import (
	"encoding/json"
	"testing"

	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/test/browser/generate"
)

// BenchmarkExplain explains one service for 250 clusters.
func BenchmarkExplain(b *testing.B) {
	f := generate.New(5000, 250, 100)
	for i := range b.N {
		f.Refresh(i % 5000)
	}
}

// BenchmarkDiff compares two states of 250 clusters and 5,000 services, of which 50 differ.
func BenchmarkDiff(b *testing.B) {
	f := generate.New(5000, 250, 100)
	f.Refresh(f.All()...)
	before := f.Snapshot(1)
	f.Trouble = 50
	f.Refresh(f.All()...)
	after := f.Snapshot(2)
	b.ResetTimer()
	for range b.N {
		d := state.Diff(before, after)
		d.Entries = state.NewObserver().Observe(before, after)
		if d.Empty() {
			b.Fatal("no difference")
		}
	}
}

// BenchmarkEncode encodes the state of 250 clusters and 5,000 services.
func BenchmarkEncode(b *testing.B) {
	f := generate.New(5000, 250, 100)
	f.Refresh(f.All()...)
	s := f.Snapshot(1)
	b.ResetTimer()
	for range b.N {
		content, err := json.Marshal(s)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(content)))
	}
}
