package fleet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Conflict is a way in which an export of a cluster can conflict with a plain export of the Service
// that NewService returns.
type Conflict struct {
	// Service and Export change the Service or its ServiceExport so that they conflict.
	Service func(*corev1.Service)
	Export  func(*mcsv1beta1.ServiceExport)
	// Resolve changes the Service in place so that it agrees again. It is nil where that is
	// impossible, or where the ServiceExport conflicts.
	Resolve func(*corev1.Service)
}

// Conflicts are conflicts with a plain export, by the reason of the Conflict condition.
var Conflicts = map[mcsv1beta1.ServiceExportConditionReason]Conflict{
	mcsv1beta1.ServiceExportReasonPortConflict: {
		Service: func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 },
		Resolve: func(s *corev1.Service) { s.Spec.Ports[0].Port = 80 },
	},
	mcsv1beta1.ServiceExportReasonTypeConflict: {
		Service: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone },
	},
	mcsv1beta1.ServiceExportReasonSessionAffinityConflict: {
		Service: func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
		Resolve: func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		},
	},
	mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict: {
		Service: func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		},
		Resolve: func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = nil },
	},
	mcsv1beta1.ServiceExportReasonTrafficDistributionConflict: {
		Service: func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
		},
		Resolve: func(s *corev1.Service) { s.Spec.TrafficDistribution = nil },
	},
	mcsv1beta1.ServiceExportReasonLabelsConflict: {
		Export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"a": "b"} },
	},
	mcsv1beta1.ServiceExportReasonAnnotationsConflict: {
		Export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedAnnotations = map[string]string{"a": "b"} },
	},
	v1alpha1.ServiceExportReasonClusterSetIPConflict: {
		Export: func(e *mcsv1beta1.ServiceExport) {
			e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
		},
	},
}
