package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

func TestVersionsOfReleases(t *testing.T) {
	for version, problem := range map[string]string{
		"v0.1.0":            "",
		"v1.20.300-rc.1":    "",
		"v0.1.0-5-g3976e20": "", // git describe, five commits after a tag
		"v0.1.0-dirty":      "has changes that are not in commit v0.1.0: commit them",
		"3976e20":           "tag the commit (git tag v1.2.3)",
		"0.1.0":             "is not the version of a release",
		"v0.1":              "is not the version of a release",
		"v0.1.0+linux":      "is not the version of a release", // no tag of an image
		"dev":               "is not the version of a release",
	} {
		err := checkVersion(version)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: got %v, want %q", version, err, problem)
		}
	}
}

func TestPlatforms(t *testing.T) {
	if got, err := parsePlatforms(""); err != nil || !slices.Equal(got, allPlatforms) {
		t.Errorf("no list: %v, %v", got, err)
	}
	got, err := parsePlatforms("windows/arm64,linux/amd64")
	if want := []image.Platform{{OS: "linux", Arch: "amd64"}, {OS: "windows", Arch: "arm64"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("a list: %v, %v, want it sorted", got, err)
	}
	if _, err := parsePlatforms("linux/amd64,plan9/386"); err == nil || !strings.Contains(err.Error(), `"plan9/386": choose from darwin/amd64, `) {
		t.Errorf("an unknown platform: %v", err)
	}
}

func TestNamesOfFiles(t *testing.T) {
	r := release{version: "v1.2.3", platforms: allPlatforms}
	for _, c := range []struct {
		platform         image.Platform
		archive, program string
	}{
		{image.Platform{OS: "linux", Arch: "arm64"}, "seamark_v1.2.3_linux_arm64.tar.gz", "seamark"},
		{image.Platform{OS: "windows", Arch: "amd64"}, "seamark_v1.2.3_windows_amd64.zip", "seamark.exe"},
	} {
		if got := r.archive(c.platform); got != c.archive {
			t.Errorf("archive for %s is %s, want %s", c.platform, got, c.archive)
		}
		if got := program(c.platform); got != c.program {
			t.Errorf("program for %s is %s, want %s", c.platform, got, c.program)
		}
	}
	// The image is for every platform that Linux nodes have.
	if got := r.architectures(); !slices.Equal(got, image.Architectures) {
		t.Errorf("the image is for %v", got)
	}
}

func TestTimes(t *testing.T) {
	got, err := parseEpoch("1700000000\n")
	if err != nil || got.Format("2006-01-02T15:04:05Z07:00") != "2023-11-14T22:13:20Z" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := parseEpoch("yesterday"); err == nil || !strings.Contains(err.Error(), "seconds since 1970") {
		t.Errorf("an invalid time: %v", err)
	}
}
