// Package chart is the Helm chart of Seamark: it puts the chart together from what the repository holds once, and installs,
// upgrades and uninstalls it as Helm does, so that helm list, helm upgrade and helm uninstall work on what `seamark join` installed.
//
// Only the command line may import it: Helm is heavy, and the daemons have no use for it.
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
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// ReleaseName is the name of the release in each member; the chart can be installed once per cluster.
	ReleaseName = "seamark"
	// Namespace is where the release lives.
	Namespace = objects.AgentNamespace

	chartDir    = "chart/seamark"
	policiesDir = "policies/member"
)

// Load puts the chart together: the templates, the CustomResourceDefinitions of a member as crds/, and its admission policies as a
// template. Its version is that of this build. It fails when an embedded file is broken, which a test rules out.
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
		text, err := plain(definition.CRD)
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

// plain is an object as people would write it: without a status.
func plain(obj any) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return yaml.Marshal(content)
}

// servedProperty is, in a template, the version of ClusterProperty that this API server has: somebody else's may be old.
const servedProperty = `about.k8s.io/{{ and (.Capabilities.APIVersions.Has "about.k8s.io/v1alpha1") ` +
	`(not (.Capabilities.APIVersions.Has "about.k8s.io/v1beta1")) | ternary "v1alpha1" "v1beta1" }}`

// policyTemplate makes a template of the member's policies, which are the same files that package internal/install/policies applies.
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

// chartVersion makes a version that Helm accepts of a build's, which may be a commit or "dev".
func chartVersion(build string) string {
	if semantic.MatchString(build) {
		return strings.TrimPrefix(build, "v")
	}
	return "0.0.0-build.g" + strings.Trim(notInLabel.ReplaceAllString(build, "-"), "-")
}

// Package writes the chart into dir as helm package does and returns the file, for those who install with helm.
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

// Render is what the chart would install with these values, as YAML, without asking a cluster. It fails when the schema refuses a
// value, and says which and why.
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
		return "", explain(err)
	}
	r, ok := rendered.(*release.Release)
	if !ok {
		return "", fmt.Errorf("helm returned a %T", rendered)
	}
	return r.Manifest, nil
}

// explain leaves out what only tells that Helm is at work.
func explain(err error) error {
	const preamble = "values don't meet the specifications of the schema(s) in the following chart(s):"
	if _, what, found := strings.Cut(err.Error(), preamble); found {
		return fmt.Errorf("the chart does not take these values:\n%s", strings.TrimSpace(strings.Replace(what, "\nseamark:\n", "\n", 1)))
	}
	return err
}
