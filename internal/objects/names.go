// Package objects is the vocabulary that all parts share: what objects are called and labelled, who owns them, and what makes a
// cluster a member. It decides and names; it does not talk to API servers.
package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// DefaultNamespace is the broker's namespace unless the admin chooses another: one namespace is one clusterset.
	DefaultNamespace = "seamark-broker"
	// AgentNamespace is where Seamark's own objects live in a member.
	AgentNamespace = "seamark-system"
	// ManagedBy is the value of endpointslice.kubernetes.io/managed-by on every slice we write, so that no other
	// controller touches it.
	ManagedBy = "agent.seamark.dev"
	// LabelManagedBy marks the ServiceImports a member's agent owns.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBySeamark is its value.
	ManagedBySeamark = "seamark"

	// DefaultZone is the zone of the multicluster DNS specification.
	DefaultZone = v1alpha1.DefaultZone

	maxNameLength = 253
)

// MemberAccount is the name of the ServiceAccount a member uses on the broker. The admission policies take the member's id
// from it.
func MemberAccount(clusterID string) string {
	return "member." + clusterID
}

// RecordName is the name of the ExportRecord of a service and cluster. At most 63+1+63+1+63 characters.
func RecordName(service types.NamespacedName, clusterID string) string {
	return service.Name + "." + service.Namespace + "." + clusterID
}

// AggregateName is the name of the aggregated ServiceImport of a service. Dots separate the parts because neither may
// contain one: a-b in c and a in b-c must never meet.
func AggregateName(service types.NamespacedName) string {
	return service.Name + "." + service.Namespace
}

// SliceName is the name on the broker of the copy of one EndpointSlice. It stays the same for as long as the source slice
// has its name, so a pod change rewrites one object. At most 63+1+63+1+63+1+10 characters, so it never needs shortening;
// the broker's policies accept no other form.
func SliceName(service types.NamespacedName, clusterID, sourceSlice string) string {
	return RecordName(service, clusterID) + "." + shortHash(sourceSlice)
}

// ImportedSliceName is the name in an importing cluster of the copy of a broker slice.
func ImportedSliceName(service, clusterID, sourceSlice string) string {
	return service + "." + clusterID + "." + shortHash(sourceSlice)
}

// derivedNameRoom is what is left of a Service name's 63 characters beside "mcs-", "-" and the hash.
const derivedNameRoom = 63 - 4 - 1 - 10

// DerivedServiceName is the name of the Service that makes an imported service reachable in a cluster. It lies in the same namespace
// as the service it stands for, so it cannot have its name.
func DerivedServiceName(service string) string {
	return "mcs-" + service[:min(len(service), derivedNameRoom)] + "-" + shortHash(service)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:5])
}

// Labels are the labels of a broker object that belongs to a service; clusterID is empty for the aggregate, which belongs to
// no single cluster.
func Labels(service types.NamespacedName, clusterID string) map[string]string {
	labels := map[string]string{
		mcsv1beta1.LabelServiceName:    service.Name,
		v1alpha1.LabelServiceNamespace: service.Namespace,
	}
	if clusterID != "" {
		labels[mcsv1beta1.LabelSourceCluster] = clusterID
	}
	return labels
}

// ServiceOf is the service a broker object says it belongs to; ok is false where it carries no such labels.
func ServiceOf(obj metav1.Object) (service types.NamespacedName, ok bool) {
	labels := obj.GetLabels()
	service = types.NamespacedName{Namespace: labels[v1alpha1.LabelServiceNamespace], Name: labels[mcsv1beta1.LabelServiceName]}
	return service, service.Name != "" && service.Namespace != ""
}

// CheckRecord refuses a record whose name, labels and content disagree: what an object came under must be what it claims to
// be, or one member could speak for another, or for another service.
func CheckRecord(r *v1alpha1.ExportRecord) error {
	service, ok := ServiceOf(r)
	if !ok {
		return fmt.Errorf("record %s has no service labels", r.Name)
	}
	if r.Spec.ServiceName != service.Name || r.Spec.ServiceNamespace != service.Namespace {
		return fmt.Errorf("record %s is labelled for %s but describes %s/%s", r.Name, service, r.Spec.ServiceNamespace, r.Spec.ServiceName)
	}
	if source := r.Labels[mcsv1beta1.LabelSourceCluster]; source != string(r.Spec.ClusterID) {
		return fmt.Errorf("record %s is labelled for cluster %q but says it is from %q", r.Name, source, r.Spec.ClusterID)
	}
	if want := RecordName(service, string(r.Spec.ClusterID)); r.Name != want {
		return fmt.Errorf("record %s should be named %s", r.Name, want)
	}
	return nil
}

// CheckSlice refuses a broker slice whose name and labels disagree.
func CheckSlice(s *discoveryv1.EndpointSlice) error {
	service, ok := ServiceOf(s)
	if !ok {
		return fmt.Errorf("slice %s has no service labels", s.Name)
	}
	source := s.Labels[mcsv1beta1.LabelSourceCluster]
	if source == "" || !strings.HasPrefix(s.Name, RecordName(service, source)+".") || len(s.Name) > maxNameLength {
		return fmt.Errorf("slice %s is labelled for %s of cluster %q, which is not what its name says", s.Name, service, source)
	}
	return nil
}

// IsReserved tells namespaces that are neither exported nor imported unless the broker's admin names them for a member.
func IsReserved(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "seamark-")
}

// NamespaceAllowed tells whether a member may exchange services of a namespace: any but the reserved ones by default, or
// exactly the ones its Cluster object names.
func NamespaceAllowed(allowed []string, namespace string) bool {
	if len(allowed) == 0 {
		return !IsReserved(namespace)
	}
	for _, name := range allowed {
		if name == namespace {
			return true
		}
	}
	return false
}

// AgentLease is the Lease in the agent's namespace by which its replicas agree on one that works.
const AgentLease = "seamark-agent"
