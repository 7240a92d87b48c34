package mergetest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Valid draws records of one service that the CRD accepts, each of another cluster. Values come
// from small sets, so that they conflict often.
func Valid() *rapid.Generator[[]v1alpha1.ExportRecordSpec] {
	return rapid.Custom(func(t *rapid.T) []v1alpha1.ExportRecordSpec {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom(clusterIDs), 1, 6, rapid.ID).Draw(t, "clusters")
		records := make([]v1alpha1.ExportRecordSpec, len(ids))
		for i, id := range ids {
			records[i] = record(t, id, validPorts(t))
			if len(records[i].Ports) == 0 {
				records[i].Type = mcsv1beta1.Headless
			}
			records[i].IPFamilies = rapid.SampledFrom(familyLists).Draw(t, "families")
		}
		return records
	})
}

// Arbitrary draws records that the CRD may refuse: several of one cluster, ports that are out of
// range or exclude each other, unknown families and policies, labels that the API server refuses.
func Arbitrary() *rapid.Generator[[]v1alpha1.ExportRecordSpec] {
	return rapid.Custom(func(t *rapid.T) []v1alpha1.ExportRecordSpec {
		n := rapid.IntRange(0, 8).Draw(t, "records")
		records := make([]v1alpha1.ExportRecordSpec, n)
		for i := range records {
			id := rapid.SampledFrom(clusterIDs).Draw(t, "cluster")
			records[i] = record(t, id, arbitraryPorts(t))
			records[i].IPFamilies = rapid.SliceOfN(rapid.SampledFrom(arbitraryFamilies), 0, 3).Draw(t, "families")
			if rapid.IntRange(0, 9).Draw(t, "typo") == 0 {
				records[i].Type = "Typo"
			}
			if rapid.IntRange(0, 3).Draw(t, "arbitrary labels") == 0 {
				records[i].ExportedLabels = rapid.MapOfN(rapid.SampledFrom(arbitraryKeys), rapid.SampledFrom(arbitraryValues), 0, 5).
					Draw(t, "labels")
				records[i].ExportedAnnotations = rapid.MapOfN(rapid.SampledFrom(arbitraryKeys), rapid.SampledFrom(arbitraryValues), 0, 5).
					Draw(t, "annotations")
			}
		}
		return records
	})
}

var (
	clusterIDs  = []string{"a", "b", "c", "d.eu", "e", "f", "g"}
	portNames   = []string{"http", "https", "dns", "metrics", "grpc"}
	portNumbers = []int32{80, 443, 53, 8080}
	protocols   = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	apps        = []string{"", "", "", "http", "kubernetes.io/h2c"}

	familyLists = [][]corev1.IPFamily{
		{corev1.IPv4Protocol}, {corev1.IPv4Protocol}, {corev1.IPv6Protocol},
		{corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol},
	}
	arbitraryFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol, "IPv8", ""}
	distributions     = []string{"", "PreferClose", "PreferSameZone", "Unknown"}
	stringMaps        = []map[string]string{
		nil, nil, {}, {"tier": "web"}, {"tier": "web", "app.kubernetes.io/name": "shop"}, {"seamark.dev/owner": "x"},
	}
	arbitraryKeys = []string{
		"ok", "Also_ok", "-bad", "two/slashes/x", "", "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by",
		"multicluster.kubernetes.io/service-name", "seamark.dev/merge-version", "kubectl.kubernetes.io/last-applied-configuration",
		"Upper.Case/key", "ünïcode",
	}
	arbitraryValues = []string{"", "web", "not a label value", "-x", string(slices.Repeat([]byte("v"), 70)), "héllo"}
)

func record(t *rapid.T, cluster string, ports []v1alpha1.ServicePort) v1alpha1.ExportRecordSpec {
	s := Record(cluster, rapid.IntRange(0, 3).Draw(t, "age"), Ports(ports...))
	if rapid.IntRange(0, 4).Draw(t, "headless") == 0 {
		s.Type = mcsv1beta1.Headless
	}
	s.SessionAffinity = rapid.SampledFrom([]corev1.ServiceAffinity{"", "None", "ClientIP", "ClientIP"}).Draw(t, "affinity")
	if seconds := rapid.SampledFrom([]int32{0, 0, 60, 10800, 99999}).Draw(t, "timeout"); seconds != 0 {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	policies := []corev1.ServiceInternalTrafficPolicy{"", "Cluster", "Local"}
	s.InternalTrafficPolicy = optional(t, "internal policy", policies)
	s.TrafficDistribution = optional(t, "distribution", distributions)
	s.ExportedLabels = rapid.SampledFrom(stringMaps).Draw(t, "labels")
	s.ExportedAnnotations = rapid.SampledFrom(stringMaps).Draw(t, "annotations")
	s.UseClusterSetIP = rapid.IntRange(0, 3).Draw(t, "use") != 0
	s.RequestedClusterSetIP = rapid.IntRange(0, 3).Draw(t, "requested") != 0
	s.Prefer = rapid.SampledFrom([]string{"", "cluster", "region"}).Draw(t, "prefer")
	return s
}

func optional[T any](t *rapid.T, label string, values []T) *T {
	if rapid.Bool().Draw(t, label+" set") {
		v := rapid.SampledFrom(values).Draw(t, label)
		return &v
	}
	return nil
}

// validPorts draws ports of a Service: one that may be unnamed, or several with names. No two have
// the same name, or the same protocol and number.
func validPorts(t *rapid.T) []v1alpha1.ServicePort {
	n := rapid.IntRange(0, 4).Draw(t, "ports")
	if n == 1 && rapid.Bool().Draw(t, "unnamed") {
		return []v1alpha1.ServicePort{drawPort(t, "")}
	}
	names := rapid.Permutation(portNames).Draw(t, "names")
	var ports []v1alpha1.ServicePort
	taken := map[string]bool{}
	for i := range n {
		p := drawPort(t, names[i])
		if key := fmt.Sprint(p.Protocol, p.Port); !taken[key] {
			taken[key] = true
			ports = append(ports, p)
		}
	}
	return ports
}

func drawPort(t *rapid.T, name string) v1alpha1.ServicePort {
	p := Port(name, rapid.SampledFrom(protocols).Draw(t, "protocol"), rapid.SampledFrom(portNumbers).Draw(t, "number"))
	if app := rapid.SampledFrom(apps).Draw(t, "app"); app != "" {
		p.AppProtocol = &app
	}
	return p
}

func arbitraryPorts(t *rapid.T) []v1alpha1.ServicePort {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) v1alpha1.ServicePort {
		return v1alpha1.ServicePort{
			Name:        rapid.SampledFrom(append([]string{"", "", "Bad_Name", "-"}, portNames...)).Draw(t, "name"),
			Protocol:    rapid.SampledFrom(append([]corev1.Protocol{"", "ICMP"}, protocols...)).Draw(t, "protocol"),
			Port:        rapid.SampledFrom(append([]int32{0, -1, 65535, 65536}, portNumbers...)).Draw(t, "number"),
			AppProtocol: optional(t, "app", append([]string{"a..b/http", "-bad-", "x/y/z"}, apps...)),
		}
	}), 0, 5).Draw(t, "ports")
}
