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

// importObject and sliceObject are what is left of an API object once DNS has taken what it needs. They carry enough of the
// metadata to be kept by a Reflector while it lists.
type (
	importObject struct {
		metav1.ObjectMeta
		zone.Service
	}
	sliceObject struct {
		metav1.ObjectMeta
		service string // key of the zone
		slice   *zone.Slice
	}
)

func slimMeta(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion()}
}

// reduceImport is a cache.TransformFunc for ServiceImports. What is reduced already stays as it is.
func reduceImport(object any) (any, error) {
	si, ok := object.(*mcsv1beta1.ServiceImport)
	if !ok {
		if _, done := object.(*importObject); done {
			return object, nil
		}
		return nil, fmt.Errorf("a %T came where a ServiceImport was expected", object)
	}
	s := zone.Service{Namespace: intern(si.Namespace), Name: strings.Clone(si.Name), Kind: kindOf(si)}
	if s.Kind != zone.Headless {
		for _, p := range si.Spec.Ports {
			s.Ports = append(s.Ports, newPort(p.Name, p.Protocol, p.Port))
		}
	}
	if s.Kind == zone.ClusterSetIP {
		s.IPs = parseAddresses(si.Spec.IPs)
		s.ReverseIPs = reverseIPs(s.IPs, si.Annotations)
	}
	return &importObject{slimMeta(si), s}, nil
}

func kindOf(si *mcsv1beta1.ServiceImport) zone.Kind {
	switch {
	case si.Spec.Type == mcsv1beta1.Headless:
		return zone.Headless
	case si.Annotations[v1alpha1.AnnotationMode] == v1alpha1.ModeClassic:
		return zone.Classic
	default:
		return zone.ClusterSetIP
	}
}

// ours are the addresses that lie in the clusterset's range. Those of a derived Service do not: the cluster's own DNS names them.
func reverseIPs(ips []netip.Addr, annotations map[string]string) []netip.Addr {
	list, told := annotations[v1alpha1.AnnotationClusterSetIPs]
	if !told {
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

// addresses reads addresses and leaves out what is none. The API server checks most of them; a bad one must not hide the good.
func parseAddresses(texts []string) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && ip.Zone() == "" {
			out = append(out, ip.Unmap())
		}
	}
	return slices.Clip(out)
}

// shared is the one copy of a text that many objects have.
func intern(text string) string { return unique.Make(text).Value() }

func newPort(name string, protocol corev1.Protocol, number int32) zone.Port {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return zone.Port{Name: intern(name), Protocol: intern(string(protocol)), Number: uint16(number)}
}

// reduceSlice is a cache.TransformFunc for EndpointSlices. What is reduced already stays as it is.
func reduceSlice(object any) (any, error) {
	es, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		if _, done := object.(*sliceObject); done {
			return object, nil
		}
		return nil, fmt.Errorf("a %T came where an EndpointSlice was expected", object)
	}
	s := &zone.Slice{Cluster: intern(strings.ToLower(es.Labels[mcsv1beta1.LabelSourceCluster])), Weight: weightOf(es.Annotations)}
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

// readyEndpoints are the addresses of the endpoints that are ready or do not say, which means the same (discovery/v1).
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

// weightOf is a cluster's share. What is no weight counts as none given: the exporter's agent tells its owner.
func weightOf(annotations map[string]string) uint8 {
	n, err := strconv.ParseUint(annotations[v1alpha1.AnnotationWeight], 10, 8)
	if err != nil {
		return 1
	}
	return uint8(n)
}
