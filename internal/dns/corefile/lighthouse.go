package corefile

import (
	"errors"
	"strings"
)

// The words in the lines around the block of Submariner Lighthouse, by which its operator finds it.
const (
	lighthouseBegin = "lighthouse-start"
	lighthouseEnd   = "lighthouse-end"
)

// ErrOpenLighthouseBlock means that one of the lines around the block of Lighthouse is missing or
// there twice.
var ErrOpenLighthouseBlock = errors.New("the lines `#" + lighthouseBegin + "…` and `#" + lighthouseEnd +
	"` do not match: repair them or remove the block by hand")

// HasLighthouse reports whether the Corefile has the block that Submariner's operator writes. It
// fails with ErrOpenLighthouseBlock.
func HasLighthouse(text string) (bool, error) {
	_, _, found, err := cutLighthouse(text)
	return found, err
}

// ReplaceLighthouse returns the Corefile with Seamark's block in the place of that of Lighthouse,
// so that one write moves the zone from one server to the other: CoreDNS does not load a Corefile
// with both. It fails as Add does, and with ErrOpenLighthouseBlock.
func ReplaceLighthouse(text string, f Forward) (string, error) {
	before, after, found, err := cutLighthouse(text)
	if err != nil {
		return "", err
	}
	if !found {
		return Add(text, f)
	}
	if has, err := Has(before + after); err != nil || has {
		if err != nil {
			return "", err
		}
		return Add(before+after, f)
	}
	with, err := Add(before+after, f)
	if err != nil {
		return "", err
	}
	block := strings.TrimPrefix(with, ended(before+after))
	return before + block + after, nil
}

// RestoreLighthouse returns the Corefile with the block of Lighthouse in the place of Seamark's, as
// Submariner's operator writes it. server is the ClusterIP of Lighthouse's DNS server. A block that
// is there already is left as it is.
func RestoreLighthouse(text, server string) (string, error) {
	before, after, _, err := cut(text)
	if err != nil {
		return "", err
	}
	if has, err := HasLighthouse(before + after); err != nil || has {
		return before + after, err
	}
	if !isServer(server) {
		return "", errors.New("no address of Lighthouse's DNS server to forward to: is its Service there?")
	}
	block := "#" + lighthouseBegin + " AUTO-GENERATED SECTION. DO NOT EDIT\n" +
		"clusterset.local:53 {\n    forward . " + server + "\n}\n#" + lighthouseEnd + "\n"
	return before + block + after, nil
}

// ended returns a text with an end of its last line.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// cutLighthouse splits a Corefile at the block of Lighthouse.
func cutLighthouse(text string) (before, after string, found bool, err error) {
	lines := strings.SplitAfter(text, "\n")
	begin, end := -1, -1
	for i, line := range lines {
		switch {
		case strings.Contains(line, lighthouseBegin):
			if begin >= 0 {
				return text, "", false, ErrOpenLighthouseBlock
			}
			begin = i
		case strings.Contains(line, lighthouseEnd):
			if begin < 0 || end >= 0 {
				return text, "", false, ErrOpenLighthouseBlock
			}
			end = i
		}
	}
	switch {
	case begin < 0:
		return text, "", false, nil
	case end < 0:
		return text, "", false, ErrOpenLighthouseBlock
	}
	return strings.Join(lines[:begin], ""), strings.Join(lines[end+1:], ""), true, nil
}
