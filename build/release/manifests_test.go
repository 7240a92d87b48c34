package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// kindsIn returns the kinds and names of the objects in a manifest.
func kindsIn(t *testing.T, text string) (kinds []string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &object); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if object.APIVersion == "" || object.Kind == "" || object.Metadata.Name == "" {
			t.Errorf("an object without version, kind or name: %s", document)
		}
		kinds = append(kinds, object.Kind+" "+object.Metadata.Name)
	}
	return kinds
}

func TestManifests(t *testing.T) {
	dir := t.TempDir()
	if err := (release{version: "v1.2.3"}).writeManifests(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"broker-crds": {"CustomResourceDefinition clusters.seamark.dev", "CustomResourceDefinition serviceimports.multicluster.x-k8s.io"},
		"member-crds": {"CustomResourceDefinition serviceexports.multicluster.x-k8s.io", "CustomResourceDefinition clusterproperties.about.k8s.io"},
		"broker": {"Namespace seamark-broker", "Role seamark-member", "ClusterSet clusterset",
			"PriorityLevelConfiguration seamark-leases.seamark-broker", "FlowSchema seamark-members.seamark-broker"},
		"member": {"Namespace seamark-system", "Deployment seamark-agent", "Deployment seamark-dns", "Deployment seamark-beacon"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, "seamark_v1.2.3_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		kinds := strings.Join(kindsIn(t, string(text)), "\n") + "\n"
		for _, object := range want {
			if !strings.Contains(kinds, object+"\n") {
				t.Errorf("%s has no %s, but\n%s", name, object, kinds)
			}
		}
		if first := strings.SplitN(kinds, " ", 2)[0]; !strings.HasSuffix(name, "-crds") && first != "Namespace" {
			t.Errorf("%s begins with a %s: its namespace must come first", name, first)
		}
		if bytes.Contains(text, []byte("\n  creationTimestamp:")) || bytes.Contains(text, []byte("\nstatus:")) {
			t.Errorf("%s has fields that only an API server writes", name)
		}
	}
}

// TestChartHasTheTimeOfTheCommit checks that two packages are equal, and that the time changes
// them.
func TestChartHasTheTimeOfTheCommit(t *testing.T) {
	packaged := func(modified time.Time) []byte {
		dir := t.TempDir()
		if err := writeChart(dir, modified); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "seamark-*.tgz"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the folder has %v: %v", files, err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	if !bytes.Equal(packaged(moment), packaged(moment)) {
		t.Error("the same chart made different packages")
	}
	if bytes.Equal(packaged(moment), packaged(moment.Add(time.Hour))) {
		t.Error("the time of the commit is not used")
	}
}
