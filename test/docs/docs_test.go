// Package docs_test checks that the documentation names tests and pages that exist.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// files calls visit with every file of the repository that has the suffix.
func files(t *testing.T, suffix string, visit func(path, content string)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "test-logs") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil {
			visit(strings.TrimPrefix(path, top+"/"), string(content))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTablesNameRealTests checks that every test named in the tables exists, and that every row
// names one or is marked *later*.
func TestTablesNameRealTests(t *testing.T) {
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	files(t, "_test.go", func(_, content string) {
		for _, m := range function.FindAllStringSubmatch(content, -1) {
			declared[m[1]] = true
		}
	})
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := 0
	for _, line := range tableRows(t, "spec-coverage.md", "failure-behaviour.md") {
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 && !strings.Contains(line, "*later*") {
			t.Errorf("no test for: %s", line)
		}
		for _, m := range tests {
			if !declared[m[1]] {
				t.Errorf("test %s does not exist; it is named in: %s", m[1], line)
			}
		}
	}
	if rows < 40 {
		t.Errorf("found only %d rows", rows)
	}
}

// tableRows returns the rows of all tables of some pages, without their heads.
func tableRows(t *testing.T, pages ...string) (rows []string) {
	t.Helper()
	for _, page := range pages {
		content, err := os.ReadFile(filepath.Join(root(t), "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(content), "\n")
		for i, line := range lines {
			head := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
			if strings.HasPrefix(line, "| ") && !head {
				rows = append(rows, line)
			}
		}
	}
	return rows
}

// TestLinksLeadSomewhere checks that the target of every link between pages exists.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	files(t, ".md", func(path, content string) {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if strings.Contains(m[1], "://") || strings.ContainsAny(m[1], "[*") { // such as a pattern in the API reference
				continue
			}
			if _, err := os.Stat(filepath.Join(root(t), filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			}
		}
	})
}
