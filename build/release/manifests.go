package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

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
		if texts[string(set)+"-crds"], err = manifest(objects...); err != nil {
			return err
		}
	}
	broker, err := brokeradmin.NewBrokerObjects(brokeradmin.DeployOptions{})
	if err != nil {
		return err
	}
	if texts["broker"], err = manifest(broker...); err != nil {
		return err
	}
	if texts["member"], err = memberManifest(); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, r.file("_"+name+".yaml")), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// memberManifest returns the chart with its default values. Helm creates the namespace itself, so
// the chart has none.
func memberManifest() ([]byte, error) {
	namespace, err := manifest(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chart.Namespace}})
	if err != nil {
		return nil, err
	}
	rendered, err := chart.Render(nil)
	return append(namespace, rendered...), err
}

// manifest returns objects as one YAML file, without fields that only an API server writes.
func manifest(objects ...client.Object) ([]byte, error) {
	scheme := brokeradmin.NewScheme()
	var out bytes.Buffer
	for _, obj := range objects {
		kind, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			return nil, fmt.Errorf("write object %s: %w", obj.GetName(), err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("write %s %s: %w", kind.Kind, obj.GetName(), err)
		}
		content["apiVersion"], content["kind"] = kind.ToAPIVersionAndKind()
		delete(content, "status")
		if metadata, ok := content["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("write %s %s: %w", kind.Kind, obj.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}
