package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// Every code that is printed has a section in docs/troubleshooting.md, and every section there is
// about such a code.
func TestEveryCodeIsExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllSubmatch(text, -1) {
		sections[string(m[1])]++
	}
	codes := map[string]bool{}
	for _, c := range Checks {
		codes[c.Code] = true
	}
	for _, p := range explain.Problems {
		codes[p.Code] = true
	}
	for code := range codes {
		if sections[code] != 1 {
			t.Errorf("%s has %d sections", code, sections[code])
		}
	}
	for section := range sections {
		if !codes[section] {
			t.Errorf("%s is the code of no check or problem", section)
		}
	}
}
