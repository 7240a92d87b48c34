// Package bridge lets clusters that run Submariner Lighthouse only, and clusters that run Seamark
// only, use each other's services. It runs between the two brokers, so no agent of either side
// changes.
//
// Towards Seamark it is the agent of each Lighthouse cluster: it holds that cluster's membership
// and publishes its services, as an agent of a cluster without clusterset IPs would. Towards
// Lighthouse it writes what Lighthouse's agent of each Seamark cluster would write.
//
// toseamark.go, tolighthouse.go and aggregate.go decide without I/O; reconciler.go reads, calls
// them, and writes the difference. docs/decisions/0025-bridge.md has the reasons.
package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Labels and annotations of Lighthouse 0.24 on its broker. The misspelled one is spelled so there.
const (
	managedByLighthouse = "lighthouse-agent.submariner.io"

	labelSourceNamespace      = "lighthouse.submariner.io/sourceNamespace"
	labelHeadless             = "lighthouse.submariner.io/is-headless"
	labelSourceName           = "lighthouse.submariner.io/source-name"
	labelClusterID            = "submariner-io/clusterID"
	labelOriginatingNamespace = "submariner-io/originatingNamespace"

	annotationPublishNotReady = "lighthouse.submariner.io/publish-not-ready-addresses"
	annotationGlobalnet       = "lighthouse.submariner.io/globalnet-enabled"
	annotationUseClusterSetIP = "lighthouse.submariner.io/use-clusterset-ip"
	annotationTimestamp       = "lighthouse.submariner.io/svc-export-timestanp"
)

// isBridged reports whether a bridge wrote an object on Lighthouse's broker.
func isBridged(obj metav1.Object) bool { return obj.GetAnnotations()[objects.AnnotationBridge] != "" }

// sourceCluster returns the cluster that an object on Lighthouse's broker belongs to. It is empty
// for an aggregate.
func sourceCluster(obj metav1.Object) string { return obj.GetLabels()[mcsv1alpha1.LabelSourceCluster] }

// lighthouseService returns the service of an object on Lighthouse's broker. Aggregates name it in
// annotations, objects of one cluster in labels.
func lighthouseService(obj metav1.Object) (service types.NamespacedName, ok bool) {
	names := obj.GetLabels()
	if isAggregate(obj) {
		names = obj.GetAnnotations()
	}
	service = types.NamespacedName{Namespace: names[labelSourceNamespace], Name: names[mcsv1alpha1.LabelServiceName]}
	return service, service.Name != "" && service.Namespace != ""
}

// isAggregate reports whether a ServiceImport on Lighthouse's broker is the one of all clusters.
func isAggregate(obj metav1.Object) bool {
	return obj.GetAnnotations()[mcsv1alpha1.LabelServiceName] != ""
}

// aggregateName returns the name that Lighthouse gives the aggregate of a service. It is ambiguous:
// a-b in c and a in b-c share it.
func aggregateName(service types.NamespacedName) string {
	return service.Name + "-" + service.Namespace
}

// State is what Lighthouse's broker has of one service.
type State struct {
	// Imports are the ServiceImports of single clusters.
	Imports []*mcsv1alpha1.ServiceImport
	// Aggregate is the ServiceImport with the service's aggregate name, nil if there is none. It may
	// be that of another service; see aggregateName.
	Aggregate *mcsv1alpha1.ServiceImport
	Slices    []*discoveryv1.EndpointSlice
}

// importOf returns the ServiceImport of a cluster, or nil.
func (s State) importOf(cluster string) *mcsv1alpha1.ServiceImport {
	i := slices.IndexFunc(s.Imports, func(si *mcsv1alpha1.ServiceImport) bool { return sourceCluster(si) == cluster })
	if i < 0 {
		return nil
	}
	return s.Imports[i]
}

// slicesOf returns the slices of a cluster in the order of their names.
func (s State) slicesOf(cluster string) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, slice := range s.Slices {
		if sourceCluster(slice) == cluster {
			out = append(out, slice)
		}
	}
	slices.SortFunc(out, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// exportTime returns the creation of the ServiceExport behind a cluster's ServiceImport, in
// nanoseconds. Lighthouse takes an export that does not say so for the youngest.
func exportTime(si *mcsv1alpha1.ServiceImport) int64 {
	t, err := strconv.ParseInt(si.Annotations[annotationTimestamp], 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return t
}

// byPrecedence sorts the ServiceImports of single clusters as Lighthouse does: those of the
// aggregate's type first, then by age, then by cluster id.
func byPrecedence(imports []*mcsv1alpha1.ServiceImport, aggregated mcsv1alpha1.ServiceImportType) []*mcsv1alpha1.ServiceImport {
	other := func(si *mcsv1alpha1.ServiceImport) int {
		if si.Spec.Type == aggregated {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(slices.Values(imports), func(a, b *mcsv1alpha1.ServiceImport) int {
		return cmp.Or(cmp.Compare(other(a), other(b)), cmp.Compare(exportTime(a), exportTime(b)),
			strings.Compare(sourceCluster(a), sourceCluster(b)))
	})
}

// objectName returns the name of an object that the bridge creates on Lighthouse's broker. An agent
// of Lighthouse lets the API server choose one. A name that follows from what the object is for
// cannot be chosen twice, whenever the bridge is killed.
func objectName(service types.NamespacedName, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{service.Namespace, service.Name}, parts...), "/")))
	return service.Name + "-" + hex.EncodeToString(sum[:5])
}
