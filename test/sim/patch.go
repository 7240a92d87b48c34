package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the one that API servers use
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// patchStatus applies a JSON patch to the status of an object as it is now, and sets obj to the
// result. Errors are those of an API server: see test/integration/exporters.
func (s *server) patchStatus(obj client.Object, patch client.Patch) error {
	current := s.get(reflect.TypeOf(obj), client.ObjectKeyFromObject(obj))
	if current == nil {
		return apierrors.NewNotFound(resource(obj), obj.GetName())
	}
	if patch.Type() != types.JSONPatchType {
		panic(fmt.Sprintf("patches of type %s are not modelled", patch.Type()))
	}
	patched, err := applyJSONPatch(current, obj, patch)
	if err != nil {
		return err
	}
	if si, ok := patched.(*mcsv1beta1.ServiceImport); ok {
		if errs := duplicates(si.Status.Clusters); len(errs) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: mcsv1beta1.ServiceImportKindName}, obj.GetName(), errs)
		}
	}
	kindOf(obj).set(obj, patched)
	return s.update(obj, true)
}

// applyJSONPatch returns a patched copy of the current object.
func applyJSONPatch(current, obj client.Object, patch client.Patch) (client.Object, error) {
	data, err := patch.Data(obj)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	patched, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if !ok {
		panic("not an object")
	}
	return patched, json.Unmarshal(after, patched)
}

// duplicates returns the errors of a list whose entries are identified by their cluster.
func duplicates(clusters []mcsv1beta1.ClusterStatus) (errs field.ErrorList) {
	known := map[string]bool{}
	for i, c := range clusters {
		if known[c.Cluster] {
			errs = append(errs, field.Duplicate(field.NewPath("status", "clusters").Index(i), c.Cluster))
		}
		known[c.Cluster] = true
	}
	return errs
}
