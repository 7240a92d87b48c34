package bridge_test

import (
	"encoding/json"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

func seamarkLists() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		"ExportRecord":  &v1alpha1.ExportRecordList{},
		"EndpointSlice": &discoveryv1.EndpointSliceList{},
		"ServiceImport": &mcsv1beta1.ServiceImportList{},
	}
}

func eachItem(list client.ObjectList, do func(client.Object)) {
	_ = meta.EachListItem(list, func(o runtime.Object) error { // do returns no error
		do(o.(client.Object))
		return nil
	})
}

// rendered returns the objects of a service on Lighthouse's broker as texts, without what must
// differ between an agent of Lighthouse and the bridge: cluster ids, chosen names, the age of the
// export, the name of the source of a headless slice, references to pods, and the bridge's mark.
func (m *mixed) rendered(t *testing.T, id, ns string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	for _, list := range []client.ObjectList{imports, endpoints} {
		if err := m.local.List(t.Context(), list, client.InNamespace(lighthouse.BrokerNamespace)); err != nil {
			t.Fatal(err)
		}
	}
	add := func(obj client.Object, aggregate bool) {
		names := obj.GetLabels()
		if aggregate {
			names = obj.GetAnnotations()
		}
		if names["lighthouse.submariner.io/sourceNamespace"] != ns {
			return
		}
		service := names[mcsv1alpha1.LabelServiceName]
		if !aggregate {
			obj.SetName("")
		}
		neutral(obj)
		text, err := json.MarshalIndent(obj, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out[service] = append(out[service], strings.ReplaceAll(string(text), `"`+id+`"`, `"ID"`))
	}
	for i := range imports.Items {
		si := &imports.Items[i]
		aggregate := si.Annotations[mcsv1alpha1.LabelServiceName] != ""
		if aggregate && si.Spec.Type == mcsv1alpha1.Headless {
			// An agent sets it when it updates the aggregate of a headless service.
			delete(si.Annotations, "lighthouse.submariner.io/use-clusterset-ip")
		}
		add(si, aggregate)
	}
	for i := range endpoints.Items {
		s := &endpoints.Items[i]
		for j := range s.Endpoints {
			s.Endpoints[j].TargetRef = nil
		}
		add(s, false)
	}
	return out
}

func neutral(obj client.Object) {
	annotations, labels := obj.GetAnnotations(), obj.GetLabels()
	delete(annotations, objects.AnnotationBridge)
	if _, has := annotations["lighthouse.submariner.io/svc-export-timestanp"]; has {
		annotations["lighthouse.submariner.io/svc-export-timestanp"] = "TIME"
	}
	if _, has := labels["lighthouse.submariner.io/source-name"]; has {
		labels["lighthouse.submariner.io/source-name"] = "SOURCE"
	}
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetManagedFields(nil)
}
