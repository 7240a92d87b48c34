package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

// binary is a program of the release, and what Go recorded in it.
type binary struct {
	name     string
	platform image.Platform
	sum      string
	info     *debug.BuildInfo
}

// readBinary reads the build information of a program. It fails if content is no program that Go
// built.
func readBinary(name string, p image.Platform, content []byte) (binary, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return binary{}, fmt.Errorf("read the build information of %s for %s: %w", name, p, err)
	}
	sum := sha256.Sum256(content)
	return binary{name: name, platform: p, sum: hex.EncodeToString(sum[:]), info: info}, nil
}

func (b binary) ref() string { return b.name + "/" + b.platform.String() }

// sbom returns a CycloneDX document in JSON: the programs of the release with their checksums, the
// modules of which they consist, and which program has which module. All comes from the programs
// themselves. The document has no licences, which Go does not record.
func (r release) sbom(binaries []binary) ([]byte, error) {
	const root = "seamark"
	programs, modules := map[string]cdx.Component{}, map[string]cdx.Component{}
	dependencies := map[string][]string{root: nil}
	for _, b := range binaries {
		ref := b.ref()
		programs[ref] = r.programComponent(b)
		dependencies[root] = append(dependencies[root], ref)
		dependencies[ref] = nil
		for _, component := range moduleComponents(b.info) {
			modules[component.BOMRef] = component
			dependencies[ref] = append(dependencies[ref], component.BOMRef)
		}
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.UTC().Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: root, Type: cdx.ComponentTypeApplication, Name: "seamark", Version: r.version,
			PackageURL: packageURL("github.com/seamark-dev/seamark", r.version),
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
	}
	components := slices.Concat(byKey(programs), byKey(modules))
	bom.Components = &components
	graph := make([]cdx.Dependency, 0, len(dependencies))
	for _, ref := range slices.Sorted(maps.Keys(dependencies)) {
		on := dependencies[ref]
		slices.Sort(on)
		graph = append(graph, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	bom.Dependencies = &graph
	return encodeBOM(bom)
}

// encodeBOM writes a document with a serial number that depends on its content only. Version 1.6 of
// CycloneDX is the newest that common scanners read.
func encodeBOM(bom *cdx.BOM) ([]byte, error) {
	var out bytes.Buffer
	for range 2 {
		out.Reset()
		if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
			return nil, fmt.Errorf("write the SBOM: %w", err)
		}
		if bom.SerialNumber == "" {
			bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, out.Bytes()).URN()
		}
	}
	return out.Bytes(), nil
}

func (r release) programComponent(b binary) cdx.Component {
	return cdx.Component{
		BOMRef: b.ref(), Type: cdx.ComponentTypeApplication, Name: b.name, Version: r.version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: b.sum}},
		Properties: &[]cdx.Property{
			{Name: "seamark:package", Value: b.info.Path},
			{Name: "seamark:platform", Value: b.platform.String()},
		},
	}
}

// moduleComponents returns the modules of a program and Go's standard library.
func moduleComponents(info *debug.BuildInfo) []cdx.Component {
	components := []cdx.Component{libraryComponent("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, libraryComponent(module.Path, module.Version, module.Sum))
	}
	return components
}

func libraryComponent(path, version, sum string) cdx.Component {
	url := packageURL(path, version)
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if sum != "" {
		// The hash of go.sum is not that of a file, so it is no hash of the component.
		c.Properties = &[]cdx.Property{{Name: "seamark:go.sum", Value: sum}}
	}
	return c
}

// packageURL returns the package URL (purl) of a Go module.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func byKey(components map[string]cdx.Component) (list []cdx.Component) {
	for _, key := range slices.Sorted(maps.Keys(components)) {
		list = append(list, components[key])
	}
	return list
}
