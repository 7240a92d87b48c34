// Command teeth shows whether the simulator finds what it is for: it takes one mend after the other
// out of the agent's code, plays histories until one breaks a rule, and prints a table.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// mend is code of the agent that prevents a fault. Its edits take it out.
type mend struct {
	name  string
	edits []edit
}

// edit replaces a piece of a file, which must be there exactly once.
type edit struct{ file, code, without string }

func main() {
	limit := flag.Duration("limit", time.Minute, "how long to play histories at most without a mend")
	only := flag.String("only", "", "try only the mend with this name")
	flag.Parse()
	if err := run(*limit, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(limit time.Duration, only string) error {
	dir, err := os.MkdirTemp("", "teeth")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	whole, err := build(dir, "whole", nil)
	if err != nil {
		return err
	}
	found, tried := 0, 0
	fmt.Println("| without | found after | by the rule |\n|---|---|---|")
	for _, m := range mends {
		if only != "" && m.name != only {
			continue
		}
		tried++
		without, err := build(dir, "without", m.edits)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		result, err := try(without, whole, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if result.rule != "" {
			found++
		}
		fmt.Printf("| %s | %s | %s |\n", m.name, result, result.rule)
	}
	fmt.Printf("\n%d of %d found\n", found, tried)
	if found*10 < tried*9 {
		return errors.New("fewer than nine in ten are found")
	}
	return nil
}

// build builds the simulator with the edits and returns its path.
func build(dir, name string, edits []edit) (string, error) {
	files := map[string]string{} // by the path that they replace
	for _, e := range edits {
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
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, name)
	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay="+overlay, "-o", binary, "./test/sim").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %.2000s", err, out)
	}
	return binary, nil
}

// result is how soon a rule was broken; the rule is empty if none was.
type result struct {
	rule      string
	histories int
	after     time.Duration
}

func (r result) String() string {
	if r.rule == "" {
		return fmt.Sprintf("not found in %d histories (%.0f s)", r.histories, r.after.Seconds())
	}
	return fmt.Sprintf("%d histories, %.1f s", r.histories, r.after.Seconds())
}

var (
	failure = regexp.MustCompile(`seed (\d+), after (\d+) histories: ([a-z-]+):`)
	played  = regexp.MustCompile(`(\d+) histories in `)
)

// try plays histories without a mend until one breaks a rule. Seeds that break a rule of the whole
// code too do not count.
func try(without, whole string, limit time.Duration) (result, error) {
	var r result
	start := time.Now()
	for first := 1; ; {
		left := limit - time.Since(start)
		if left <= 0 {
			r.after = time.Since(start)
			return r, nil
		}
		out, err := play(without, fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.duration=%v", left))
		r.after = time.Since(start)
		match := failure.FindSubmatch(out)
		if match == nil && err != nil {
			return r, fmt.Errorf("%w: %.2000s", err, out)
		}
		if match == nil {
			r.histories += number(played.FindSubmatch(out)[1])
			return r, nil
		}
		r.histories += number(match[2])
		if _, err := play(whole, fmt.Sprintf("-sim.seed=%s", match[1])); err == nil {
			r.rule = string(match[3])
			return r, nil
		}
		first = number(match[1]) + 1
	}
}

// play runs a simulator, which ends by itself.
func play(binary string, args ...string) ([]byte, error) {
	return exec.Command(binary, append([]string{"-test.run=TestHistories", "-test.v", "-sim.early"}, args...)...).CombinedOutput()
}

func number(digits []byte) int {
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		panic(err) // matched as digits
	}
	return n
}
