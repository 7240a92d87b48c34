package imports

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
)

// ownDomain is the domain of the labels and annotations that only Seamark may set on its objects.
const ownDomain = "seamark.dev/"

// setExported adds the exported labels and annotations to an object that has Seamark's own, which
// win, and records their keys: a key whose export ended is removed, one of another controller is
// not. reserved reports whether an annotation must not be set on this kind of object.
func setExported(obj metav1.Object, merged merge.Result, reserved func(annotation string) bool) {
	labels, annotations := maps.Clone(merged.Labels), maps.Clone(merged.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return reserved(key) })
	record := strings.Join(slices.Sorted(maps.Keys(labels)), ",") + ";" + strings.Join(slices.Sorted(maps.Keys(annotations)), ",")
	obj.SetLabels(union(labels, obj.GetLabels()))
	obj.SetAnnotations(union(annotations, obj.GetAnnotations()))
	if record != ";" {
		obj.SetAnnotations(union(obj.GetAnnotations(), map[string]string{v1alpha1.AnnotationExportedKeys: record}))
	}
}

// keepForeign adds the labels and annotations that other controllers and users set on the existing
// object.
func keepForeign(obj, existing metav1.Object) {
	labels, annotations, _ := strings.Cut(existing.GetAnnotations()[v1alpha1.AnnotationExportedKeys], ";")
	obj.SetLabels(union(foreign(existing.GetLabels(), labels), obj.GetLabels()))
	obj.SetAnnotations(union(foreign(existing.GetAnnotations(), annotations), obj.GetAnnotations()))
}

// foreign returns the pairs that Seamark did not set. exported are the recorded keys of exports.
func foreign(pairs map[string]string, exported string) map[string]string {
	ours := strings.Split(exported, ",")
	out := maps.Clone(pairs)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, ownDomain) || slices.Contains(ours, key) })
	return out
}

// union returns the pairs of both maps, those of b where both have a key. It is nil if there are
// none.
func union(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// notOnServices reports whether an exported annotation is left out of derived Services. Those for
// load balancers of clouds are: the API server refuses some of them on a Service of another type.
// Those of external-dns are: another cluster must not choose host names in this one's DNS zones.
func notOnServices(annotation string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(annotation), "/")
	return domain == "service.beta.kubernetes.io" || strings.HasPrefix(domain, "external-dns.")
}
