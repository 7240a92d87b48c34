// Package deploy holds what an API server must know before Seamark works with it, embedded so that the command line and the
// tests install exactly what the repository shows.
package deploy

import "embed"

// CRDs are the generated CustomResourceDefinitions of our own kinds and of those we serve for others (ClusterProperty,
// ClusterClaim), one file each below crds/. Package internal/install/crds decides which of them to install, and when not to.
//
//go:embed crds/*.yaml
var CRDs embed.FS

// Policies are the ValidatingAdmissionPolicies and their bindings: policies/broker for the API server that holds the
// broker, policies/member for each member. Package internal/install/policies applies them.
//
//go:embed policies/broker/*.yaml policies/member/*.yaml
var Policies embed.FS

// Chart is the Helm chart without its CustomResourceDefinitions and admission policies, which are the two above. Package
// internal/install/chart puts them together.
//
//go:embed all:chart/seamark
var Chart embed.FS
