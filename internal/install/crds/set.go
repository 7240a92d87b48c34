// Package crds installs the CustomResourceDefinitions that Seamark needs and leaves alone those that are somebody else's.
//
// MCS API and about.k8s.io are shared ground: other implementations and the platform itself install the same definitions. A
// definition that is newer than ours, or that another tool brought and that serves what we need, stays as it is.
package crds

import (
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
)

// Set names the definitions one kind of API server needs.
type Set string

const (
	// Broker is the API server that holds the broker: our own kinds and the aggregated ServiceImport.
	Broker Set = "broker"
	// Member is a cluster that joins: the MCS API and the two kinds that hold its identity.
	Member Set = "member"
)

// Definition is a CustomResourceDefinition as this version of Seamark brings it.
type Definition struct {
	// CRD is the definition with the API server's defaults filled in.
	CRD *apiextensionsv1.CustomResourceDefinition
	// AnyOf are the versions with which Seamark works. A definition that is not ours may stay when it serves one of them.
	AnyOf []string
}

// source is where a definition comes from.
type source struct {
	file  string // below deploy/crds
	yaml  []byte // or the text itself
	anyOf []string
}

var sources = map[Set][]source{
	Broker: {
		{file: "seamark.dev_clustersets.yaml", anyOf: []string{"v1alpha1"}},
		{file: "seamark.dev_clusters.yaml", anyOf: []string{"v1alpha1"}},
		{file: "seamark.dev_exportrecords.yaml", anyOf: []string{"v1alpha1"}},
		{yaml: mcscrd.ServiceImportCRD, anyOf: []string{"v1beta1"}},
	},
	Member: {
		{yaml: mcscrd.ServiceExportCRD, anyOf: []string{"v1beta1"}},
		{yaml: mcscrd.ServiceImportCRD, anyOf: []string{"v1beta1"}},
		{file: "about.k8s.io_clusterproperties.yaml", anyOf: []string{"v1beta1", "v1alpha1"}},
		{file: "multicluster.k8s.io_clusterclaims.yaml", anyOf: []string{"v1"}},
	},
}

// Definitions returns the definitions of a set, in the order in which they are installed. It fails on a set that does not
// exist and on an embedded file that is broken, which a test rules out.
func Definitions(set Set) ([]Definition, error) {
	from, ok := sources[set]
	if !ok {
		return nil, fmt.Errorf("no set of CustomResourceDefinitions is called %q: there are %s and %s", set, Broker, Member)
	}
	definitions := make([]Definition, 0, len(from))
	for _, s := range from {
		text := s.yaml
		if s.file != "" {
			var err error
			if text, err = fs.ReadFile(deploy.CRDs, "crds/"+s.file); err != nil {
				return nil, fmt.Errorf("embedded CustomResourceDefinition: %w", err)
			}
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("embedded CustomResourceDefinition %s: %w", s.file, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		definitions = append(definitions, Definition{CRD: crd, AnyOf: s.anyOf})
	}
	return definitions, nil
}
