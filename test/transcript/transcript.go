// Package transcript runs commands and tests what they print: it runs the commands of a golden file
// and compares their output with what the file says.
package transcript

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Replacement replaces output that differs from run to run, such as times.
type Replacement struct {
	Pattern *regexp.Regexp
	With    string
}

// Common are the replacements that all transcripts need.
var Common = []Replacement{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://SERVER"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
}

// Check runs each command of the golden file and fails the test if the commands print anything
// else than the file says. With -update it rewrites the file instead.
//
// A line of the file that begins with "$ seamark " is a command; run gets the rest of it. A line
// that begins with "# " is a comment and is kept. All other lines are output.
func Check(t testing.TB, golden string, run func(line string) Result, replacements ...Replacement) {
	t.Helper()
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got := replay(string(want), run, append(Common[:len(Common):len(Common)], replacements...))
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("run with -update if the new output is right (-want +got):\n%s", diff)
	}
}

// replay returns the golden file as it is with the output of this run.
func replay(golden string, run func(line string) Result, replacements []Replacement) string {
	var got strings.Builder
	for line := range strings.Lines(golden) {
		if strings.HasPrefix(line, "# ") {
			got.WriteString(line)
		}
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ seamark ")
		if !ok {
			continue
		}
		result := run(command)
		fmt.Fprintf(&got, "$ seamark %s\n%s", command, normalize(result.Stdout, replacements)+normalize(result.Stderr, replacements))
		if result.Code != 0 {
			fmt.Fprintf(&got, "[exit %d]\n", result.Code)
		}
		got.WriteString("\n")
	}
	return got.String()
}

func normalize(text string, replacements []Replacement) string {
	for _, r := range replacements {
		text = r.Pattern.ReplaceAllString(text, r.With)
	}
	return text
}
