// Command teeth shows whether the simulator finds what it is for: it takes one mend after the other
// out of the agent's code, plays histories until one breaks a rule, and prints a table. First it
// plays the same seeds with the whole code, as a control: a rule that this breaks as well proves
// little.
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
	// with are further options of the simulator, by which it plays what shows the mend.
	with string
}

// edit replaces a piece of a file, which must be there exactly once.
type edit struct{ file, code, without string }

func main() {
	limit := flag.Int("histories", 4000, "how many histories to play at most without a mend")
	only := flag.String("only", "", "try only the mends whose name contains this")
	flag.Parse()
	if err := run(*limit, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(limit int, only string) error {
	dir, err := os.MkdirTemp("", "teeth")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	whole, err := build(dir, "whole", nil)
	if err != nil {
		return err
	}
	controls := map[string]control{}
	found, tried := 0, 0
	fmt.Println("| without | found after | by the rule |\n|---|---|---|")
	for _, m := range mends {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		without, err := build(dir, "without", m.edits)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if _, played := controls[m.with]; !played {
			if controls[m.with], err = playControl(whole, limit, m.with); err != nil {
				return err
			}
		}
		result, err := try(without, controls[m.with], limit, m.with)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rule := ""
		if result.rule != "" {
			found++
			rule = "`" + result.rule + "`"
		}
		fmt.Printf("| %s | %s | %s |\n", m.name, result, rule)
	}
	fmt.Printf("\n%d of %d found\n", found, tried)
	for with, c := range controls {
		fmt.Printf("of %d histories (options %q) of the whole code, so many broke a rule: %v\n", limit, with, c.byRule)
	}
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
		return fmt.Sprintf("not found in %d histories", r.histories)
	}
	noun := "histories"
	if r.histories == 1 {
		noun = "history"
	}
	return fmt.Sprintf("%d %s, %.1f s", r.histories, noun, r.after.Seconds())
}

// control is which seeds break a rule of the whole code, and how many break each rule.
type control struct {
	seeds  map[int]bool
	byRule map[string]int
}

var (
	failure = regexp.MustCompile(`seed (\d+), after \d+ histories: ([a-z-]+):`)
	// surveyed is a line of a survey, which lists at most five seeds.
	surveyed = regexp.MustCompile(`([a-z-]+): broken by (\d+) histories, first by seeds \[([0-9 ]+)\]`)
)

// playControl plays the histories of the seeds from 1 to limit with the whole code.
func playControl(whole string, limit int, with string) (control, error) {
	c := control{seeds: map[int]bool{}, byRule: map[string]int{}}
	out, err := play(whole, with, "-sim.first=1", fmt.Sprintf("-sim.histories=%d", limit), "-sim.survey")
	lines := surveyed.FindAllSubmatch(out, -1)
	if err != nil && len(lines) == 0 {
		return c, fmt.Errorf("the whole code: %w: %.2000s", err, out)
	}
	for _, line := range lines {
		c.byRule[string(line[1])] = number(line[2])
		for seed := range strings.FieldsSeq(string(line[3])) {
			c.seeds[number([]byte(seed))] = true
		}
	}
	return c, nil
}

// isChance reports whether the whole code might break the rule so often, too, if other histories
// came of the same seeds: breaks is in how many of the first histories it was broken only without a
// mend.
func (c control) isChance(rule string, breaks, histories, limit int) bool {
	expected := float64(c.byRule[rule]) * float64(histories) / float64(limit)
	return float64(breaks) < 1+3*expected
}

// try plays the histories of the seeds from 1 to limit without a mend until one breaks a rule that
// the control does not explain. The seeds decide, not the time: the verdict is the same on a
// machine that others use too.
func try(without string, c control, limit int, with string) (result, error) {
	start := time.Now()
	breaks := map[string]int{}
	for first := 1; first <= limit; {
		out, err := play(without, with, fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.histories=%d", limit-first+1))
		match := failure.FindSubmatch(out)
		switch {
		case match == nil && err != nil:
			return result{}, fmt.Errorf("%w: %.2000s", err, out)
		case match == nil:
			return result{histories: limit}, nil
		}
		seed, rule := number(match[1]), string(match[2])
		if !c.seeds[seed] {
			breaks[rule]++
			if !c.isChance(rule, breaks[rule], seed, limit) {
				return result{rule, seed, time.Since(start)}, nil
			}
		}
		first = seed + 1
	}
	return result{histories: limit}, nil
}

// play runs a simulator, which ends by itself.
func play(binary, with string, args ...string) ([]byte, error) {
	args = append(append(strings.Fields(with), "-test.run=TestHistories", "-test.v"), args...)
	return exec.Command(binary, args...).CombinedOutput()
}

func number(digits []byte) int {
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		panic(err) // matched as digits
	}
	return n
}
