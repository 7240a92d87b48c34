package bridge

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/objects"
)

// errNoBlock is why a bridged cluster allocates no clusterset IPs: traffic to them would have to be
// balanced over its pods, and Lighthouse publishes its ClusterIPs only.
var errNoBlock = errors.New("a cluster behind a bridge allocates no clusterset IPs")

// SeamarkInput is all that was read to decide what a Lighthouse cluster publishes of one service on
// Seamark's broker.
type SeamarkInput struct {
	exports.Settings
	Service    types.NamespacedName
	Lighthouse State
	// Records are all clusters' records of the service, as far as they are admitted.
	Records []*v1alpha1.ExportRecord
}

// DecideSeamark returns what the Lighthouse cluster of in.ClusterID publishes on Seamark's broker.
// Objects of Lighthouse are translated into those from which they were made, and Seamark's own
// rules decide.
func DecideSeamark(in SeamarkInput) exports.Plan {
	decide := exports.Input{
		Settings: in.Settings, Records: in.Records,
		RegionOf: func(string) string { return "" },
		Addressing: exports.Addressing{
			Accepts: func(netip.Addr) bool { return true },
			Offer:   func(corev1.IPFamily, netip.Addr) (netip.Addr, error) { return netip.Addr{}, errNoBlock },
		},
	}
	decide.UseClusterSetIP = false // Lighthouse publishes ClusterIPs
	si := in.Lighthouse.importOf(in.ClusterID)
	if si == nil || isBridged(si) {
		return exports.Plan{}
	}
	decide.Slices = in.Lighthouse.slicesOf(in.ClusterID)
	decide.Export, decide.Service = exportOf(si, in.Service), serviceOf(si, in.Service, decide.Slices)
	return exports.Decide(decide)
}

// exportOf returns the ServiceExport behind a cluster's ServiceImport, as far as it is known.
func exportOf(si *mcsv1alpha1.ServiceImport, service types.NamespacedName) *mcsv1beta1.ServiceExport {
	created := si.CreationTimestamp
	if t, ok := si.Annotations[annotationTimestamp]; ok && t != "" && exportTime(si) > 0 {
		// Whole seconds: the API server keeps no fractions, so a record would never equal this.
		created = metav1.NewTime(time.Unix(0, exportTime(si)).UTC().Truncate(time.Second))
	}
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: service.Namespace, Name: service.Name, CreationTimestamp: created,
	}}
}

// serviceOf returns the Service behind a cluster's ServiceImport.
func serviceOf(si *mcsv1alpha1.ServiceImport, service types.NamespacedName, from []*discoveryv1.EndpointSlice) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIPs: si.Spec.IPs, IPFamilies: familiesOf(si, from),
			SessionAffinity: si.Spec.SessionAffinity, SessionAffinityConfig: si.Spec.SessionAffinityConfig,
			InternalTrafficPolicy: si.Spec.InternalTrafficPolicy, TrafficDistribution: si.Spec.TrafficDistribution,
		},
	}
	if si.Spec.Type == mcsv1alpha1.Headless {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		svc.Spec.Ports = portsOf(from)
		return svc
	}
	if len(si.Spec.IPs) > 0 {
		svc.Spec.ClusterIP = si.Spec.IPs[0]
	}
	for _, p := range si.Spec.Ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return svc
}

// familiesOf returns the address families of a Service. An older agent does not publish them.
func familiesOf(si *mcsv1alpha1.ServiceImport, from []*discoveryv1.EndpointSlice) []corev1.IPFamily {
	if len(si.Spec.IPFamilies) > 0 {
		return si.Spec.IPFamilies
	}
	var out []corev1.IPFamily
	add := func(f corev1.IPFamily) {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	for _, addr := range objects.ParseAddresses(si.Spec.IPs) {
		add(objects.FamilyOf(addr))
	}
	for _, s := range from {
		if s.AddressType != discoveryv1.AddressTypeFQDN {
			add(corev1.IPFamily(s.AddressType))
		}
	}
	if len(out) == 0 {
		add(corev1.IPv4Protocol)
	}
	return out
}

// portsOf returns the ports of a headless Service, of which Lighthouse publishes only those of its
// pods.
func portsOf(from []*discoveryv1.EndpointSlice) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, s := range from {
		for _, p := range s.Ports {
			port := corev1.ServicePort{
				Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP),
				AppProtocol: p.AppProtocol, Port: ptr.Deref(p.Port, 0),
			}
			taken := func(q corev1.ServicePort) bool {
				return q.Name == port.Name || (q.Protocol == port.Protocol && q.Port == port.Port)
			}
			if port.Port > 0 && !slices.ContainsFunc(out, taken) {
				out = append(out, port)
			}
		}
	}
	return out
}
