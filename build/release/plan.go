package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

// allPlatforms are the platforms of the command line. The image is for those of Linux.
var allPlatforms = []image.Platform{
	{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
	{OS: "windows", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
}

// release describes what is released.
type release struct {
	// root is the top of the checkout.
	root string
	// version is that of the programs, the image and the chart: v1.2.3 or v1.2.3-rc.1.
	version string
	// time is the time of every file in an archive, and of the SBOM: that of the commit.
	time time.Time
	// platforms are the platforms of the command line, sorted.
	platforms []image.Platform
	// baseURL is where the archives can be downloaded from.
	baseURL string
}

// checkVersion refuses a version that is no tag of a release. Such a version would not be accepted
// by Helm and krew, or as the tag of an image.
func checkVersion(version string) error {
	if base, dirty := strings.CutSuffix(version, "-dirty"); dirty {
		return fmt.Errorf("the checkout has changes that are not in commit %s: commit them, or remove them, and run make release again", base)
	}
	parsed, err := utilversion.ParseSemantic(version)
	if err != nil || !strings.HasPrefix(version, "v") || parsed.BuildMetadata() != "" {
		return fmt.Errorf("%q is not the version of a release, such as v1.2.3 or v1.2.3-rc.1: tag the commit (git tag v1.2.3), "+
			"or try a release with make release VERSION=v0.0.0-test", version)
	}
	return nil
}

// parsePlatforms reads platforms from a list with commas. An empty list means all. It refuses
// platforms that have no release.
func parsePlatforms(list string) ([]image.Platform, error) {
	if list == "" {
		return allPlatforms, nil
	}
	wanted := strings.Split(list, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(allPlatforms, func(p image.Platform) bool { return p.String() == name }) {
			return nil, fmt.Errorf("there is no release for platform %q: choose from %s", name, joinPlatforms(allPlatforms, ", "))
		}
	}
	var platforms []image.Platform
	for _, p := range allPlatforms {
		if slices.Contains(wanted, p.String()) {
			platforms = append(platforms, p)
		}
	}
	return platforms, nil
}

func joinPlatforms(platforms []image.Platform, separator string) string {
	names := make([]string, 0, len(platforms))
	for _, p := range platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, separator)
}

// parseEpoch reads a time as SOURCE_DATE_EPOCH and git write it: seconds since 1970.
func parseEpoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time in seconds since 1970: %w", text, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// architectures returns the architectures of the image.
func (r release) architectures() (names []string) {
	for _, p := range r.platforms {
		if p.OS == "linux" {
			names = append(names, p.Arch)
		}
	}
	return names
}

// file returns the name of a file of the release.
func (r release) file(suffix string) string { return "seamark_" + r.version + suffix }

// archive returns the name of the archive of a platform. Windows opens zip without another program.
func (r release) archive(p image.Platform) string {
	extension := ".tar.gz"
	if p.OS == "windows" {
		extension = ".zip"
	}
	return r.file("_" + p.OS + "_" + p.Arch + extension)
}

// program returns the file name of the command line on a platform.
func program(p image.Platform) string {
	if p.OS == "windows" {
		return "seamark.exe"
	}
	return "seamark"
}
