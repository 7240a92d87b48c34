package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

// importObject and sliceObject are API objects reduced to what DNS needs. They carry enough of the
// metadata for a Reflector to store them while it lists.
type (
	importObject struct {
		metav1.ObjectMeta
		zone.Service
		internal bool // see isLighthouseInternal
	}
	sliceObject struct {
		metav1.ObjectMeta
		service string // as returned by zone.Key
		slice   *zone.Slice
	}
)

func slimMeta(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion()}
}

// reduceImport is a cache.TransformFunc for ServiceImports. It returns a reduced object unchanged.
func reduceImport(object any) (any, error) {
	si, ok := object.(*mcsv1beta1.ServiceImport)
	if !ok {
		if _, done := object.(*importObject); done {
			return object, nil
		}
		return nil, fmt.Errorf("got a %T, want a ServiceImport", object)
	}
	s := zone.Service{Namespace: intern(si.Namespace), Name: strings.Clone(si.Name), Kind: kindOf(si), Managed: writtenBySeamark(si)}
	if s.Kind != zone.Headless {
		for _, p := range si.Spec.Ports {
			s.Ports = append(s.Ports, newPort(p.Name, p.Protocol, p.Port))
		}
	}
	if s.Kind == zone.ClusterSetIP {
		s.IPs = parseAddresses(si.Spec.IPs)
		s.ReverseIPs = reverseIPs(s.IPs, si.Annotations)
	}
	return &importObject{slimMeta(si), s, isLighthouseInternal(si)}, nil
}

func kindOf(si *mcsv1beta1.ServiceImport) zone.Kind {
	_, lighthouse := si.Annotations[v1alpha1.AnnotationUseClusterSetIPAlias]
	switch {
	case si.Spec.Type == mcsv1beta1.Headless:
		return zone.Headless
	case si.Annotations[v1alpha1.AnnotationMode] == v1alpha1.ModeClassic:
		return zone.Classic
	case lighthouse && len(si.Spec.IPs) == 0 && !writtenBySeamark(si):
		return zone.Classic // of Submariner Lighthouse, whose agents set no mode
	default:
		return zone.ClusterSetIP
	}
}

// writtenBySeamark reports whether Seamark's agent manages a ServiceImport. Package objects has the
// names, but would add more than a hundred packages to this program.
func writtenBySeamark(si *mcsv1beta1.ServiceImport) bool {
	return si.Labels["app.kubernetes.io/managed-by"] == "seamark"
}

// isLighthouseInternal reports whether a ServiceImport is one that agents of Submariner Lighthouse
// exchange: what a cluster contributes, in the namespace of Submariner's operator, and everything
// in the namespace of its broker. Clients do not use them.
func isLighthouseInternal(si *mcsv1beta1.ServiceImport) bool {
	_, label := si.Labels[mcsv1beta1.LabelServiceName]
	_, annotation := si.Annotations[mcsv1beta1.LabelServiceName]
	return label || annotation
}

// reverseIPs returns the addresses that are clusterset IPs. The ClusterIPs of a derived Service are
// not: the cluster's own DNS has their reverse names.
func reverseIPs(ips []netip.Addr, annotations map[string]string) []netip.Addr {
	list, annotated := annotations[v1alpha1.AnnotationClusterSetIPs]
	if !annotated {
		return ips
	}
	clusterset := parseAddresses(strings.Split(list, ","))
	var out []netip.Addr
	for _, ip := range ips {
		if slices.Contains(clusterset, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// parseAddresses parses addresses and leaves out invalid ones, so that one of them does not hide
// the others. The API server validates most of them.
func parseAddresses(texts []string) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && ip.Zone() == "" {
			out = append(out, ip.Unmap())
		}
	}
	return slices.Clip(out)
}

// intern returns one shared copy of a text that many objects have.
func intern(text string) string { return unique.Make(text).Value() }

func newPort(name string, protocol corev1.Protocol, number int32) zone.Port {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return zone.Port{Name: intern(name), Protocol: intern(string(protocol)), Number: uint16(number)}
}

// reduceSlice is a cache.TransformFunc for EndpointSlices. It returns a reduced object unchanged.
func reduceSlice(object any) (any, error) {
	es, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		if _, done := object.(*sliceObject); done {
			return object, nil
		}
		return nil, fmt.Errorf("got a %T, want an EndpointSlice", object)
	}
	s := &zone.Slice{
		Cluster: intern(strings.ToLower(es.Labels[mcsv1beta1.LabelSourceCluster])), Weight: weightOf(es.Annotations),
		Lighthouse: es.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedByLighthouse,
	}
	for _, p := range es.Ports {
		if p.Port != nil {
			s.Ports = append(s.Ports, newPort(ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP), *p.Port))
		}
	}
	if es.AddressType != discoveryv1.AddressTypeFQDN {
		s.Endpoints = readyEndpoints(es.Endpoints)
	}
	return &sliceObject{slimMeta(es), zone.Key(es.Namespace, es.Labels[mcsv1beta1.LabelServiceName]), s}, nil
}

// readyEndpoints returns the addresses of the ready endpoints. An endpoint without the condition
// counts as ready (discovery/v1).
func readyEndpoints(all []discoveryv1.Endpoint) []zone.Endpoint {
	out := make([]zone.Endpoint, 0, len(all))
	for i := range all {
		e := &all[i]
		if !ptr.Deref(e.Conditions.Ready, true) {
			continue
		}
		for _, ip := range parseAddresses(e.Addresses) {
			out = append(out, zone.Endpoint{
				Addr: ip, Hostname: strings.Clone(ptr.Deref(e.Hostname, "")), Zone: intern(ptr.Deref(e.Zone, "")),
			})
		}
	}
	return out
}

// weightOf returns a cluster's weight. An invalid weight counts as 1; the exporter's agent reports
// it on the ServiceExport.
func weightOf(annotations map[string]string) uint8 {
	n, err := strconv.ParseUint(annotations[v1alpha1.AnnotationWeight], 10, 8)
	if err != nil {
		return 1
	}
	return uint8(n)
}
