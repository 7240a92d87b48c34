// Package chart assembles the Helm chart of Seamark from the embedded files, and installs, upgrades
// and uninstalls it with Helm, so that helm list, helm upgrade and helm uninstall work on what
// `seamark join` installed.
//
// Only the command line may import it: Helm is large, and the daemons do not need it.
package chart

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// ReleaseName is the name of the release in each member. A cluster has one release.
	ReleaseName = objects.ReleaseName
	// Namespace is the namespace of the release.
	Namespace = objects.AgentNamespace

	chartDir    = "chart/seamark"
	policiesDir = "policies/member"
)

// Load assembles the chart: the templates, the CRDs of a member as crds/, and its admission
// policies as a template. The version of the chart is that of this build. Load fails if an embedded
// file is invalid, which a test rules out.
func Load() (*helmchart.Chart, error) {
	var files []*archive.BufferedFile
	add := func(name string, data []byte) {
		files = append(files, &archive.BufferedFile{Name: name, Data: data})
	}
	err := fs.WalkDir(deploy.Chart, chartDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(deploy.Chart, path)
		add(strings.TrimPrefix(path, chartDir+"/"), data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	definitions, err := crds.Definitions(crds.Member)
	if err != nil {
		return nil, err
	}
	for _, definition := range definitions {
		text, err := manifestOf(definition.CRD)
		if err != nil {
			return nil, fmt.Errorf("write CustomResourceDefinition %s: %w", definition.CRD.Name, err)
		}
		add("crds/"+definition.CRD.Name+".yaml", text)
	}
	policies, err := policyTemplate()
	if err != nil {
		return nil, err
	}
	add("templates/policies.yaml", policies)
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("load the embedded chart: %w", err)
	}
	c.Metadata.AppVersion = version.String()
	c.Metadata.Version = chartVersion(version.String())
	return c, nil
}

// manifestOf returns an object as a YAML manifest, without its status.
func manifestOf(obj any) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp") // null
	return yaml.Marshal(content)
}

// servedProperty is a template of the version of ClusterProperty that the API server has. Another
// tool may have installed an older CRD.
const servedProperty = `about.k8s.io/{{ and (.Capabilities.APIVersions.Has "about.k8s.io/v1alpha1") ` +
	`(not (.Capabilities.APIVersions.Has "about.k8s.io/v1beta1")) | ternary "v1alpha1" "v1beta1" }}`

// policyTemplate returns a template of the member's policies, made from the files that package
// internal/install/policies applies.
func policyTemplate() ([]byte, error) {
	files, err := fs.Glob(deploy.Policies, policiesDir+"/*.yaml")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("the embedded policies of members are missing: %w", err)
	}
	var out strings.Builder
	out.WriteString("{{- if .Values.admissionPolicies }}\n")
	for _, file := range files {
		text, err := fs.ReadFile(deploy.Policies, file)
		if err != nil {
			return nil, fmt.Errorf("embedded policy: %w", err)
		}
		out.WriteString("---\n")
		out.WriteString(strings.ReplaceAll(string(text), "about.k8s.io/v1beta1", servedProperty))
	}
	out.WriteString("{{- end }}\n")
	return []byte(out.String()), nil
}

var (
	semantic   = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[-.0-9A-Za-z]+)?(\+[-.0-9A-Za-z]+)?$`)
	notInLabel = regexp.MustCompile(`[^-0-9A-Za-z]+`)
)

// chartVersion returns a version that Helm accepts for the version of a build, which may be a
// commit or "dev".
func chartVersion(build string) string {
	if semantic.MatchString(build) {
		return strings.TrimPrefix(build, "v")
	}
	return "0.0.0-build.g" + strings.Trim(notInLabel.ReplaceAllString(build, "-"), "-")
}

// Package writes the chart into dir like helm package and returns the file, for users who install
// with helm.
func Package(dir string) (string, error) {
	c, err := Load()
	if err != nil {
		return "", err
	}
	path, err := chartutil.Save(c, dir)
	if err != nil {
		return "", fmt.Errorf("write the chart into %s: %w", dir, err)
	}
	return path, nil
}

// Render returns what the chart would install with these values, as YAML, without contacting a
// cluster. If the schema rejects a value, the error says which and why.
func Render(values map[string]any) (string, error) {
	c, err := Load()
	if err != nil {
		return "", err
	}
	install := action.NewInstall(quietConfiguration())
	install.ReleaseName, install.Namespace = ReleaseName, Namespace
	install.DryRunStrategy = action.DryRunClient
	install.KubeVersion = &common.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"} // the oldest the chart accepts
	rendered, err := install.Run(c, values)
	if err != nil {
		return "", simplify(err)
	}
	r, ok := rendered.(*release.Release)
	if !ok {
		return "", fmt.Errorf("helm returned a %T", rendered)
	}
	return r.Manifest, nil
}

// RenderOptions are what RenderAll leaves out.
type RenderOptions struct{ SkipCRDs, SkipNamespace bool }

// RenderAll returns everything that makes up an installation, as YAML documents in an order in
// which they can be applied: the CRDs, the namespace with the pod security standard that its pods
// need, and what Render returns.
func RenderAll(values map[string]any, o RenderOptions) (string, error) {
	c, err := Load()
	if err != nil {
		return "", err
	}
	installed, err := Render(values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if !o.SkipCRDs {
		for _, crd := range c.CRDObjects() {
			out.WriteString("---\n")
			out.Write(crd.File.Data)
		}
	}
	if !o.SkipNamespace {
		proxy, err := RunsProxy(values)
		if err != nil {
			return "", err
		}
		text, err := manifestOf(namespaceFor(proxy))
		if err != nil {
			return "", fmt.Errorf("write namespace %s: %w", Namespace, err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	out.WriteString(installed)
	return out.String(), nil
}

// simplify removes Helm's preamble from the error of a value that the schema rejects.
func simplify(err error) error {
	const preamble = "values don't meet the specifications of the schema(s) in the following chart(s):"
	if _, problems, found := strings.Cut(err.Error(), preamble); found {
		return fmt.Errorf("the chart does not take these values:\n%s", strings.TrimSpace(strings.Replace(problems, "\nseamark:\n", "\n", 1)))
	}
	return err
}
