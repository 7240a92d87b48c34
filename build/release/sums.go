package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sumsFile is the file with the checksums of all other files of a release.
const sumsFile = "SHA256SUMS"

// sumsOf returns the SHA-256 of each file in a folder, by name, without the file of checksums.
func sumsOf(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, e := range entries {
		if e.Name() == sumsFile {
			continue
		}
		if sums[e.Name()], err = sumOf(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

func sumOf(path string) (_ string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// formatSums returns checksums as sha256sum -c reads them, sorted by name.
func formatSums(sums map[string]string) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&out, "%s  %s\n", sums[name], name)
	}
	return out.Bytes()
}

// parseSums reads what formatSums wrote.
func parseSums(text string) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || name == "" {
			return nil, fmt.Errorf("line %q of %s is not a checksum and a file name", line, sumsFile)
		}
		sums[name] = sum
	}
	return sums, nil
}

// differences compares the checksums of files in two places, which have names for the messages, and
// returns a line for each file that is not the same in both.
func differences(placeA string, a map[string]string, placeB string, b map[string]string) (lines []string) {
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		sumA, inA := a[name]
		sumB, inB := b[name]
		switch {
		case !inB:
			lines = append(lines, name+": only in "+placeA)
		case !inA:
			lines = append(lines, name+": only in "+placeB)
		case sumA != sumB:
			lines = append(lines, fmt.Sprintf("%s: %s in %s, %s in %s", name, sumA, placeA, sumB, placeB))
		}
	}
	return lines
}
