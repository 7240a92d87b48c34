package memory

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestHeapLimit(t *testing.T) {
	for text, want := range map[string]int64{"max\n": math.MaxInt64, "": math.MaxInt64, "-1": math.MaxInt64, "1000\n": 800} {
		if got := heapLimit(text); got != want {
			t.Errorf("%q gives %d, want %d", text, got, want)
		}
	}
}

// The limit is read from the first file that exists, and an explicit setting wins.
func TestRespectLimit(t *testing.T) {
	dir := t.TempDir()
	v1, none := filepath.Join(dir, "memory.limit_in_bytes"), filepath.Join(dir, "none")
	if err := os.WriteFile(v1, []byte("1073741824\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, before := limitFiles, debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		limitFiles = files
		debug.SetMemoryLimit(before)
	})
	check := func(what string, want int64) {
		t.Helper()
		debug.SetMemoryLimit(before)
		if RespectLimit(); debug.SetMemoryLimit(-1) != want {
			t.Errorf("%s: the limit is %d, want %d", what, debug.SetMemoryLimit(-1), want)
		}
	}
	t.Setenv("GOMEMLIMIT", "")
	limitFiles = []string{none}
	check("outside a container", before)
	limitFiles = []string{none, v1}
	check("in a container", 1073741824/5*4)
	t.Setenv("GOMEMLIMIT", "500MiB")
	check("with $GOMEMLIMIT", before)
}
