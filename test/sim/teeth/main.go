// Command teeth shows whether the simulator finds what it is for: it takes one mend after the other
// out of the agent's code, plays histories until one breaks a rule, and prints a table.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// mend is code of the agent that prevents a fault. Its edits take it out.
type mend struct {
	name  string
	edits []edit
}

// edit replaces a piece of a file, which must be there exactly once.
type edit struct{ file, code, without string }

func main() {
	histories := flag.Int("histories", 20000, "how many histories to play at most without a mend")
	only := flag.String("only", "", "try only the mend with this name")
	flag.Parse()
	if err := run(*histories, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(histories int, only string) error {
	found, tried := 0, 0
	fmt.Println("| without | found after | by the rule |\n|---|---|---|")
	for _, m := range mends {
		if only != "" && m.name != only {
			continue
		}
		tried++
		result, err := try(m, histories)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if strings.HasPrefix(result, "not found") {
			fmt.Printf("| %s | %s | |\n", m.name, result)
			continue
		}
		found++
		fmt.Printf("| %s | %s |\n", m.name, result)
	}
	fmt.Printf("\n%d of %d found\n", found, tried)
	if found*10 < tried*9 {
		return fmt.Errorf("fewer than nine in ten are found")
	}
	return nil
}

var failure = regexp.MustCompile(`seed \d+, after (\d+) histories: ([a-z-]+):`)

// try plays histories without a mend and says after how many it was missed, and by which rule.
func try(m mend, histories int) (string, error) {
	dir, err := os.MkdirTemp("", "teeth")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	files := map[string]string{}             // by the path that they replace
	for _, e := range m.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			return "", err
		}
		source := path
		if changed, again := files[path]; again {
			source = changed
		}
		original, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(original), e.code); n != 1 {
			return "", fmt.Errorf("the code is %d times in %s, not once: change this table with it", n, e.file)
		}
		files[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(files[path], []byte(strings.Replace(string(original), e.code, e.without, 1)), 0o600); err != nil {
			return "", err
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	args := []string{
		"test", "-vet=off", "-ldflags=-w", "-timeout=2h", "-overlay=" + overlay, "./test/sim",
		"-run=TestHistories", "-count=1", fmt.Sprintf("-sim.histories=%d", histories),
	}
	out, err := exec.Command("go", args...).CombinedOutput() // ends by itself
	if err == nil {
		return fmt.Sprintf("not found in %d histories", histories), nil
	}
	match := failure.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%.2000s", out)
	}
	return fmt.Sprintf("%s histories | %s", match[1], match[2]), nil
}
