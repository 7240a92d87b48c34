// Package crds installs the CRDs that Seamark needs and does not change those of other tools.
//
// Other implementations and the platform install CRDs of the MCS API and of about.k8s.io too. A CRD
// that is newer than the bundled one, or that another tool installed and that serves what Seamark
// needs, stays as it is.
package crds

import (
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
)

// Set is the name of the CRDs that one kind of API server needs.
type Set string

const (
	// Broker is for the API server of a broker: Seamark's own kinds and the aggregated ServiceImport.
	Broker Set = "broker"
	// Member is for a cluster that joins: the MCS API and the two kinds of its identity.
	Member Set = "member"
)

// Definition is a CRD that is bundled with this version of Seamark.
type Definition struct {
	// CRD has the API server's defaults filled in.
	CRD *apiextensionsv1.CustomResourceDefinition
	// AnyOf are the versions with which Seamark works. A CRD of another tool may stay if it serves one
	// of them.
	AnyOf []string
	// storesOldest is set for the CRDs of the MCS API beside Submariner: see BesideSubmariner.
	storesOldest bool
}

// source is the text of a CRD.
type source struct {
	file  string // in deploy/crds
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

// Definitions returns the CRDs of a set in the order in which they are installed. It fails on a set
// that does not exist and on an invalid embedded file, which a test rules out.
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
