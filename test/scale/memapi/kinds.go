package memapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what the server has to know of a kind.
type kind struct {
	group, version, resource, name string
	// hasStatus is true if the status is a subresource.
	hasStatus bool
}

// kinds are those that an agent reads or writes in its own cluster. Requests for other kinds are
// answered with 404, as by a server that does not serve them.
var kinds = []kind{
	{"", "v1", "namespaces", "Namespace", true},
	{"", "v1", "services", "Service", true},
	{"", "v1", "secrets", "Secret", false},
	{"", "v1", "configmaps", "ConfigMap", false},
	{"", "v1", "nodes", "Node", false},
	{"", "v1", "pods", "Pod", true},
	{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", false},
	{"coordination.k8s.io", "v1", "leases", "Lease", false},
	{"networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", true},
	{"multicluster.x-k8s.io", "v1beta1", "serviceexports", "ServiceExport", true},
	{"multicluster.x-k8s.io", "v1beta1", "serviceimports", "ServiceImport", true},
	{"about.k8s.io", "v1beta1", "clusterproperties", "ClusterProperty", false},
	{"multicluster.k8s.io", "v1", "clusterclaims", "ClusterClaim", false},
	{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", true},
}

// ownedKinds are those that agents give owners.
var ownedKinds = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
	return k.resource != "services" && k.resource != "endpointslices" && k.resource != "serviceimports"
})

func (k kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

// target is what the path of a request names.
type target struct {
	kind                         kind
	namespace, name, subresource string
}

// parsePath returns what a path names. ok is false if no kind has it.
func parsePath(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var group, version string
	switch {
	case len(parts) > 2 && parts[0] == "api":
		version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.group == group && k.version == version && k.resource == parts[0] })
	if at < 0 {
		return t, false
	}
	t.kind = kinds[at]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, true
}

// failure is the answer to a request that fails.
type failure struct {
	code    int
	reason  metav1.StatusReason
	message string
	details *metav1.StatusDetails
}

func fail(code int, reason metav1.StatusReason, message string, k kind, name string) *failure {
	return &failure{code, reason, message, &metav1.StatusDetails{Name: name, Group: k.group, Kind: k.resource}}
}

func notFound(k kind, name string) *failure {
	return fail(http.StatusNotFound, metav1.StatusReasonNotFound, k.resource+" "+name+" not found", k, name)
}

func alreadyExists(k kind, name string) *failure {
	return fail(http.StatusConflict, metav1.StatusReasonAlreadyExists, k.resource+" "+name+" already exists", k, name)
}

func conflict(k kind, name string) *failure {
	return fail(http.StatusConflict, metav1.StatusReasonConflict, k.resource+" "+name+" has been modified", k, name)
}

func internal(err error) *failure {
	return &failure{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil}
}

func (f *failure) text() []byte {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(f.code), Reason: f.reason, Message: f.message, Details: f.details,
	})
	if err != nil {
		return []byte("{}") // a Status can always be encoded
	}
	return text
}

// Kinds returns all kinds that a server has, with their scopes.
func Kinds() map[schema.GroupVersionKind]meta.RESTScope {
	out := map[schema.GroupVersionKind]meta.RESTScope{}
	for _, k := range kinds {
		scope := meta.RESTScopeNamespace
		switch k.resource {
		case "namespaces", "nodes", "servicecidrs", "clusterproperties", "clusterclaims", "customresourcedefinitions":
			scope = meta.RESTScopeRoot
		}
		out[schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.name}] = scope
	}
	return out
}
