package brokeradmin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Render returns the manifests of a new broker: what Deploy would create, in an order in which they
// can be applied. It contacts no API server.
func Render(o DeployOptions) ([]byte, error) {
	o.Namespace = cmp.Or(o.Namespace, objects.DefaultNamespace)
	if err := checkDeploy(o); err != nil {
		return nil, err
	}
	set, err := desiredClusterSet(nil, o)
	if err != nil {
		return nil, err
	}
	definitions, err := crds.Definitions(crds.Broker)
	if err != nil {
		return nil, err
	}
	rules, err := policies.Load(policies.Broker)
	if err != nil {
		return nil, err
	}
	var all []client.Object
	for _, definition := range definitions {
		all = append(all, definition.CRD)
	}
	all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace, Labels: managedLabels("")}})
	all = append(all, rules...)
	all = append(all, sharedRole(o.Namespace))
	for _, f := range fairnessOf(o.Namespace) {
		all = append(all, f.level, f.schema)
	}
	return Manifests(append(all, set)...)
}

func checkDeploy(o DeployOptions) error {
	var errs []error
	if o.ClusterSet != "" {
		errs = append(errs, CheckClusterSetName(o.ClusterSet))
	}
	errs = append(errs, CheckNamespaces([]string{o.Namespace}))
	_, err := ParseRanges(cidrs(o.Ranges))
	return errors.Join(append(errs, err)...)
}

// Manifests returns objects as YAML documents, without what only API servers write.
func Manifests(objs ...client.Object) ([]byte, error) {
	scheme := NewScheme()
	var out bytes.Buffer
	for _, obj := range objs {
		kind, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", obj.GetName(), err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("render %s %s: %w", kind.Kind, obj.GetName(), err)
		}
		unstructured.RemoveNestedField(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp") // null
		manifest := &unstructured.Unstructured{Object: content}
		manifest.SetGroupVersionKind(kind)
		text, err := yaml.Marshal(manifest.Object)
		if err != nil {
			return nil, fmt.Errorf("render %s %s: %w", kind.Kind, obj.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}
