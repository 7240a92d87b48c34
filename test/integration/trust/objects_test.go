package trust

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func items(t testing.TB, list client.ObjectList) []metav1.Object {
	t.Helper()
	var found []metav1.Object
	must(t, meta.EachListItem(list, func(obj runtime.Object) error {
		accessor, err := meta.Accessor(obj)
		found = append(found, accessor)
		return err
	}))
	return found
}

func deletePolicies(ctx context.Context, c client.Client) error {
	return c.Delete(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "seamark-broker-owned"}})
}

func deleteKinds(ctx context.Context, c client.Client) error {
	return c.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "exportrecords.seamark.dev"}})
}
