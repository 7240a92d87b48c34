package merge

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Limits of what an export may bring along. The API server refuses more than 256 KiB of annotations; some of that is left
// to those who write the object. Labels have no limit there but that of a request, which together with the ports must not
// come near the 1.5 MiB of etcd; keys count twice, for the server notes them in managedFields.
const (
	maxAnnotationBytes = 240 << 10
	maxLabelBytes      = 64 << 10
)

// readMetadata takes the exported labels and annotations that the service may have. What equals the oldest's is shared.
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

// sanitize returns the pairs that are valid and, taken in the order of their keys, fit into the limit. It returns the map
// itself if that is all of them.
func sanitize(in map[string]string, valid func(k, v string) bool, limit int) map[string]string {
	size, clean := 0, true
	for k, v := range in {
		size += len(k) + len(v)
		clean = clean && valid(k, v)
	}
	if clean && size <= limit {
		return in
	}
	out := make(map[string]string, len(in))
	size = 0
	for _, k := range slices.Sorted(maps.Keys(in)) {
		v := in[k]
		if n := len(k) + len(v); valid(k, v) && size+n <= limit {
			out[k] = v
			size += n
		}
	}
	return out
}

func validLabel(key, value string) bool {
	return !reservedLabel(key) && len(content.IsLabelKey(key)) == 0 && len(content.IsLabelValue(value)) == 0
}

func validAnnotation(key, _ string) bool {
	// The API server looks at annotation keys in lower case; so do we, so that no spelling gets past the reserved ones.
	key = strings.ToLower(key)
	return !reservedAnnotation(key) && len(content.IsLabelKey(key)) == 0
}

// reservedLabel tells labels that are not an export's to set on the objects made from it. Selectors of controllers hang on
// them: multicluster.kubernetes.io and seamark.dev say what an object belongs to, service.kubernetes.io/service-proxy-name
// would hide a derived Service from kube-proxy, endpointslice.kubernetes.io hands slices to another controller. Kubernetes
// reserves its domains as a whole; only app.kubernetes.io is for everybody, but for the label that says who manages the
// object, for that is us.
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

// reservedAnnotation tells annotations that are not an export's to set: ours, those of the MCS API, and kubectl's, whose
// last-applied-configuration would make the next apply remove fields. The rest of kubernetes.io stays open, because much of
// it is meant for people to set on Services (service.kubernetes.io/topology-mode).
func reservedAnnotation(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return prefixed && (within(domain, "seamark.dev") || within(domain, "multicluster.kubernetes.io") ||
		within(domain, "kubectl.kubernetes.io"))
}

// within tells whether a domain is parent or lies below it.
func within(domain, parent string) bool {
	rest, ok := strings.CutSuffix(domain, parent)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}
