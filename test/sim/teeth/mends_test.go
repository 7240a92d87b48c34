package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table quotes code. It must change with the code, or the mend is not tried any more.
func TestMendsQuoteTheCode(t *testing.T) {
	for _, m := range mends {
		for _, e := range m.edits {
			source, err := os.ReadFile(filepath.Join("../../..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), e.code); n != 1 {
				t.Errorf("%s: the code is %d times in %s, not once", m.name, n, e.file)
			}
		}
	}
}
