package merge

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Limits of exported metadata. The API server refuses more than 256 KiB of annotations. Importers
// record the exported keys in one of them, so keys count twice; the rest is for other annotations.
// Labels are limited only by the size of a request: together with the ports they must stay well
// below the 1.5 MiB of etcd.
const (
	maxAnnotationBytes = 208 << 10
	maxLabelBytes      = 32 << 10
)

// readMetadata sets the exported labels and annotations that the service may have. Maps that equal
// the oldest's are shared.
func (m *member) readMetadata(oldest *member) {
	if m != oldest && maps.Equal(m.ExportedLabels, oldest.ExportedLabels) {
		m.labels = oldest.labels
	} else {
		m.labels = sanitize(m.ExportedLabels, validLabel, maxLabelBytes)
	}
	if m != oldest && maps.Equal(m.ExportedAnnotations, oldest.ExportedAnnotations) {
		m.annotations = oldest.annotations
	} else {
		m.annotations = sanitize(m.ExportedAnnotations, validAnnotation, maxAnnotationBytes)
	}
}

// sanitize returns the valid pairs that fit into the limit, taken in the order of their keys. It
// returns the map itself if all do.
func sanitize(in map[string]string, valid func(k, v string) bool, limit int) map[string]string {
	size, clean := 0, true
	for k, v := range in {
		size += cost(k, v)
		clean = clean && valid(k, v)
	}
	if clean && size <= limit {
		return in
	}
	out := make(map[string]string, len(in))
	size = 0
	for _, k := range slices.Sorted(maps.Keys(in)) {
		v := in[k]
		if n := cost(k, v); valid(k, v) && size+n <= limit {
			out[k] = v
			size += n
		}
	}
	return out
}

// cost is what a pair counts for the limits: the key again and a separator for its record.
func cost(key, value string) int { return 2*len(key) + 1 + len(value) }

func validLabel(key, value string) bool {
	return !reservedLabel(key) && len(content.IsLabelKey(key)) == 0 && len(content.IsLabelValue(value)) == 0
}

func validAnnotation(key, _ string) bool {
	// The API server validates annotation keys in lower case. Reserved keys must match in any case.
	key = strings.ToLower(key)
	return !reservedAnnotation(key) && len(content.IsLabelKey(key)) == 0
}

// reservedLabel reports whether an export may not set a label on the objects created from it,
// because controllers select by it: multicluster.kubernetes.io and seamark.dev name the service of
// an object, service.kubernetes.io/service-proxy-name would hide a derived Service from kube-proxy,
// and endpointslice.kubernetes.io assigns slices to another controller. Kubernetes reserves its
// domains as a whole. Users may set labels of app.kubernetes.io, except managed-by, which Seamark
// sets.
func reservedLabel(key string) bool {
	domain, name, prefixed := strings.Cut(key, "/")
	switch {
	case !prefixed:
		return false
	case domain == "app.kubernetes.io":
		return name == "managed-by"
	default:
		return within(domain, "kubernetes.io") || within(domain, "k8s.io") || within(domain, "seamark.dev") ||
			domain == "multicluster.x-k8s.io"
	}
}

// reservedAnnotation reports whether an export may not set an annotation: those of Seamark, of the
// MCS API, and of kubectl, whose last-applied-configuration would make the next apply remove
// fields. Others of kubernetes.io are allowed, because many are meant for users to set on Services,
// such as service.kubernetes.io/topology-mode.
func reservedAnnotation(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return prefixed && (within(domain, "seamark.dev") || within(domain, "multicluster.kubernetes.io") ||
		within(domain, "kubectl.kubernetes.io"))
}

// within reports whether a domain is parent or a subdomain of it.
func within(domain, parent string) bool {
	rest, ok := strings.CutSuffix(domain, parent)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}
