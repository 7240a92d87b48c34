package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "seamark.dev", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ClusterSet{}, &ClusterSetList{},
		&Cluster{}, &ClusterList{},
		&ExportRecord{}, &ExportRecordList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
