package agent

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/objects"
)

// foreignContent strips what other members publish before it is cached: this cluster is not to hold
// what it never reads, nor far more of a member than its limits allow.
type foreignContent struct {
	own      string
	content  *limits.Content
	limitsOf func(account string) objects.Limits
}

// aggregatesOf is the account of the aggregates that a member wrote. They do not count as services
// that it exports. No cluster id has a space.
func aggregatesOf(member string) string { return member + " aggregates" }

// memberOf returns the member of an account.
func memberOf(account string) string {
	member, _, _ := strings.Cut(account, " ")
	return member
}

// strip removes what is not read of an object of another member, or all of its content.
func (f *foreignContent) strip(obj client.Object) {
	if index.IsDropped(obj) {
		return // caches may transform an object twice
	}
	account, cost := obj.GetLabels()[mcsv1beta1.LabelSourceCluster], limits.Cost{}
	if si, ok := obj.(*mcsv1beta1.ServiceImport); ok {
		account = aggregatesOf(si.Labels[v1alpha1.LabelWrittenBy])
	}
	if memberOf(account) == f.own {
		f.content.Forget(contentKey(obj)) // another member may have written the aggregate before
		return
	}
	switch o := obj.(type) {
	case *v1alpha1.ExportRecord:
		keepKeys(o, recordLabels, recordAnnotations)
		cost = limits.Cost{Services: 1, Bytes: recordBytes(o)}
	case *discoveryv1.EndpointSlice:
		keepKeys(o, sliceLabels, sliceAnnotations)
		stripEndpoints(o.Endpoints)
		cost = limits.Cost{Endpoints: sliceEndpoints(o), Bytes: sliceBytes(o)}
	case *mcsv1beta1.ServiceImport:
		cost = limits.Cost{Services: 1, Bytes: size(o.Labels) + size(o.Annotations)}
	}
	if !f.content.Keep(contentKey(obj), account, cost, f.limitsOf(account)) {
		drop(obj)
	}
}

func contentKey(obj client.Object) string { return fmt.Sprintf("%T %s", obj, obj.GetName()) }

// drop removes the content of an object, and marks it.
func drop(obj client.Object) {
	obj.SetAnnotations(nil)
	switch o := obj.(type) {
	case *v1alpha1.ExportRecord:
		o.Spec = v1alpha1.ExportRecordSpec{
			ServiceName: o.Spec.ServiceName, ServiceNamespace: o.Spec.ServiceNamespace, ClusterID: o.Spec.ClusterID, ExportedAt: o.Spec.ExportedAt,
		}
	case *discoveryv1.EndpointSlice:
		o.Endpoints, o.Ports = nil, nil
	case *mcsv1beta1.ServiceImport:
		keepKeys(o, aggregateLabels, nil)
		o.Spec = mcsv1beta1.ServiceImportSpec{Type: o.Spec.Type} // the exporter with precedence restores it
	}
	index.MarkDropped(obj)
}

// The labels and annotations of other members' objects that agents read.
var (
	recordLabels      = sets.New(mcsv1beta1.LabelServiceName, v1alpha1.LabelServiceNamespace, mcsv1beta1.LabelSourceCluster)
	recordAnnotations = sets.New(v1alpha1.AnnotationWithdrawalHeld)
	sliceLabels       = sets.New(mcsv1beta1.LabelServiceName, v1alpha1.LabelServiceNamespace, mcsv1beta1.LabelSourceCluster,
		discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, corev1.IsHeadlessService)
	sliceAnnotations = sets.New(v1alpha1.AnnotationRegion, v1alpha1.AnnotationNodeRegions, v1alpha1.AnnotationWeight)
	aggregateLabels  = sets.New(mcsv1beta1.LabelServiceName, v1alpha1.LabelServiceNamespace, v1alpha1.LabelWrittenBy, objects.LabelManagedBy)
)

func keepKeys(obj client.Object, labels, annotations sets.Set[string]) {
	maps.DeleteFunc(obj.GetLabels(), func(k, _ string) bool { return !labels.Has(k) })
	maps.DeleteFunc(obj.GetAnnotations(), func(k, _ string) bool { return !annotations.Has(k) })
}

// stripEndpoints leaves what exporters publish; see exports.ForeignEndpoint. An endpoint has one
// address.
func stripEndpoints(endpoints []discoveryv1.Endpoint) {
	for i := range endpoints {
		e := &endpoints[i]
		e.TargetRef, e.Hints, e.DeprecatedTopology = nil, nil, nil
		if len(e.Addresses) > 1 {
			e.Addresses = []string{e.Addresses[0]}
		}
	}
}

// recordBytes returns the bytes of a record that count for the limit of its member.
func recordBytes(r *v1alpha1.ExportRecord) int {
	n := size(r.Annotations) + size(r.Spec.ExportedLabels) + size(r.Spec.ExportedAnnotations)
	for _, p := range r.Spec.Ports {
		n += len(p.Name) + len(ptr.Deref(p.AppProtocol, ""))
	}
	return n
}

// sliceBytes returns the bytes of a slice that count for the limit of its member.
func sliceBytes(s *discoveryv1.EndpointSlice) int {
	n := size(s.Annotations)
	for _, p := range s.Ports {
		n += len(ptr.Deref(p.Name, "")) + len(ptr.Deref(p.AppProtocol, "")) + portBytes
	}
	return n
}

// portBytes is what a port of a slice counts beside its names: a slice may have 20,000.
const portBytes = 64

// sliceEndpoints returns the endpoints of a slice that count for the limit of its member. A slice
// without endpoints needs memory too.
func sliceEndpoints(s *discoveryv1.EndpointSlice) int { return max(1, len(s.Endpoints)) }
