package main

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

func TestKrewManifest(t *testing.T) {
	r := release{version: "v1.2.3", baseURL: "https://example.com/download", platforms: []image.Platform{
		{OS: "linux", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
	}}
	text, err := r.krewManifest(map[string]string{"seamark_v1.2.3_linux_amd64.tar.gz": "aa", "seamark_v1.2.3_windows_arm64.zip": "bb"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: mcs
spec:
  description: |
    Joins clusters into a clusterset, exports services to it, and shows what is exported,
    imported and wrong. It implements the Multi-Cluster Services API (MCS).
  homepage: https://seamark.dev
  platforms:
  - bin: seamark
    selector:
      matchLabels:
        arch: amd64
        os: linux
    sha256: aa
    uri: https://example.com/download/v1.2.3/seamark_v1.2.3_linux_amd64.tar.gz
  - bin: seamark.exe
    selector:
      matchLabels:
        arch: arm64
        os: windows
    sha256: bb
    uri: https://example.com/download/v1.2.3/seamark_v1.2.3_windows_arm64.zip
  shortDescription: Use services of other clusters by name
  version: v1.2.3
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if _, err := r.krewManifest(nil); err == nil || !strings.Contains(err.Error(), "has no checksum") {
		t.Errorf("a missing archive: %v", err)
	}
}

func someBinaries() []binary {
	shared := &debug.Module{Path: "example.com/shared", Version: "v1.0.0+incompatible", Sum: "h1:abc="}
	replaced := &debug.Module{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v1.1.0"}}
	return []binary{
		{name: "seamark", platform: image.Platform{OS: "linux", Arch: "amd64"}, sum: "aa",
			info: &debug.BuildInfo{GoVersion: "go1.26.8", Path: "seamark/cmd/seamark", Deps: []*debug.Module{shared, replaced}}},
		{name: "seamark-dns", platform: image.Platform{OS: "linux", Arch: "amd64"}, sum: "bb",
			info: &debug.BuildInfo{GoVersion: "go1.26.8", Path: "seamark/cmd/seamark-dns", Deps: []*debug.Module{shared}}},
	}
}

// TestSBOM checks that the document names each module once, and which program has it.
func TestSBOM(t *testing.T) {
	text, err := release{version: "v1.2.3", time: moment}.sbom(someBinaries())
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Timestamp != "2026-03-04T05:06:08Z" || bom.Metadata.Component.Version != "v1.2.3" || bom.SerialNumber == "" {
		t.Errorf("the head is %+v, %q", bom.Metadata, bom.SerialNumber)
	}
	var components []string
	for _, c := range *bom.Components {
		components = append(components, string(c.Type)+" "+c.Name+" "+c.Version+" "+c.PackageURL)
	}
	want := []string{
		"application seamark-dns v1.2.3 ", "application seamark v1.2.3 ",
		"library example.com/new v1.1.0 pkg:golang/example.com/new@v1.1.0",
		"library example.com/shared v1.0.0+incompatible pkg:golang/example.com/shared@v1.0.0%2Bincompatible",
		"library stdlib 1.26.8 pkg:golang/stdlib@1.26.8",
	}
	if !slices.Equal(components, want) {
		t.Errorf("components are\n%s\nwant\n%s", strings.Join(components, "\n"), strings.Join(want, "\n"))
	}
	for _, d := range *bom.Dependencies {
		if d.Ref == "seamark-dns/linux/amd64" && !slices.Equal(*d.Dependencies,
			[]string{"pkg:golang/example.com/shared@v1.0.0%2Bincompatible", "pkg:golang/stdlib@1.26.8"}) {
			t.Errorf("the DNS server has %v", *d.Dependencies)
		}
	}
}

// TestSBOMIsReproducible checks that the order of programs does not matter, and that another
// content has another serial number.
func TestSBOMIsReproducible(t *testing.T) {
	serial := func(text []byte) string {
		var document struct{ SerialNumber string }
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		return document.SerialNumber
	}
	reversed := someBinaries()
	slices.Reverse(reversed)
	first, err := release{version: "v1.2.3", time: moment}.sbom(someBinaries())
	if err != nil {
		t.Fatal(err)
	}
	second, err := release{version: "v1.2.3", time: moment}.sbom(reversed)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the same programs made different documents: %v", err)
	}
	other, err := release{version: "v1.2.4", time: moment}.sbom(someBinaries())
	if err != nil || serial(first) == serial(other) {
		t.Errorf("two versions have the serial number %s: %v", serial(other), err)
	}
}
