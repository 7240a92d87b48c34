package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/install/crds"
)

// writeChart writes the chart as helm package does, but with one time for all its files.
func writeChart(dir string, modified time.Time) error {
	c, err := chart.Load()
	if err != nil {
		return err
	}
	c.ModTime, c.SchemaModTime = modified, modified
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		for _, file := range files {
			file.ModTime = modified
		}
	}
	if _, err := chartutil.Save(c, dir); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// writeManifests writes what the chart and `seamark broker deploy` install without options. CRDs
// are in files of their own: the API server must serve them before it accepts the rest.
func (r release) writeManifests(dir string) error {
	texts := map[string][]byte{}
	for _, set := range []crds.Set{crds.Broker, crds.Member} {
		definitions, err := crds.Definitions(set)
		if err != nil {
			return err
		}
		var objects []client.Object
		for _, d := range definitions {
			objects = append(objects, d.CRD)
		}
		if texts[string(set)+"-crds"], err = brokeradmin.Manifests(objects...); err != nil {
			return err
		}
	}
	broker, err := brokeradmin.NewBrokerObjects(brokeradmin.DeployOptions{})
	if err != nil {
		return err
	}
	if texts["broker"], err = brokeradmin.Manifests(broker...); err != nil {
		return err
	}
	member, err := chart.RenderAll(nil, chart.RenderOptions{SkipCRDs: true})
	if err != nil {
		return err
	}
	texts["member"] = []byte(member)
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, r.file("_"+name+".yaml")), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
