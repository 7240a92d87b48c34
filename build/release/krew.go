package main

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

// pluginName is the word after kubectl. It is the name of the plugin in krew's index.
const pluginName = "mcs"

// plugin is the part of krew's kind Plugin that the release needs.
type plugin struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   pluginMeta `json:"metadata"`
	Spec       pluginSpec `json:"spec"`
}

type pluginMeta struct {
	Name string `json:"name"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector pluginSelector `json:"selector"`
	URI      string         `json:"uri"`
	SHA256   string         `json:"sha256"`
	Bin      string         `json:"bin"`
}

type pluginSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewManifest returns the manifest with which krew installs the command line as `kubectl mcs`. It
// fails if an archive has no checksum.
func (r release) krewManifest(sums map[string]string) ([]byte, error) {
	p := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: pluginMeta{Name: pluginName},
		Spec: pluginSpec{
			Version: r.version, Homepage: "https://seamark.dev", ShortDescription: "Use services of other clusters by name",
			Description: "Joins clusters into a clusterset, exports services to it, and shows what is exported,\n" +
				"imported and wrong. It implements the Multi-Cluster Services API (MCS).\n",
		},
	}
	for _, platform := range r.platforms {
		entry, err := r.pluginPlatform(platform, sums)
		if err != nil {
			return nil, err
		}
		p.Spec.Platforms = append(p.Spec.Platforms, entry)
	}
	return yaml.Marshal(p)
}

func (r release) pluginPlatform(p image.Platform, sums map[string]string) (pluginPlatform, error) {
	archive := r.archive(p)
	sum, ok := sums[archive]
	if !ok {
		return pluginPlatform{}, fmt.Errorf("archive %s has no checksum", archive)
	}
	return pluginPlatform{
		Selector: pluginSelector{MatchLabels: map[string]string{"os": p.OS, "arch": p.Arch}},
		URI:      r.baseURL + "/" + r.version + "/" + archive, SHA256: sum, Bin: program(p),
	}, nil
}
