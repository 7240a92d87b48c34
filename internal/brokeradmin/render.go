package brokeradmin

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/install/crds"
)

// Render returns the manifests of a new broker: what Deploy would create, in an order in which they
// can be applied. It contacts no API server.
func Render(o DeployOptions) ([]byte, error) {
	created, err := NewBrokerObjects(o)
	if err != nil {
		return nil, err
	}
	definitions, err := crds.Definitions(crds.Broker)
	if err != nil {
		return nil, err
	}
	var all []client.Object
	for _, definition := range definitions {
		all = append(all, definition.CRD)
	}
	return Manifests(append(all, created...)...)
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
