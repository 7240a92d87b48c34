// Package deploy embeds the CRDs, admission policies and chart that Seamark installs, so that the
// command line and the tests install exactly the files of the repository.
package deploy

import "embed"

// CRDs are the generated CRDs of Seamark's own kinds and of the shared kinds ClusterProperty and
// ClusterClaim, one file each in crds/. Package internal/install/crds decides which of them to
// install.
//
//go:embed crds/*.yaml
var CRDs embed.FS

// Policies are the ValidatingAdmissionPolicies and their bindings: policies/broker for the API
// server of the broker, policies/member for each member. Package internal/install/policies applies
// them.
//
//go:embed policies/broker/*.yaml policies/member/*.yaml
var Policies embed.FS

// Chart is the Helm chart without its CRDs and admission policies. Package internal/install/chart
// adds them.
//
//go:embed all:chart/seamark
var Chart embed.FS
