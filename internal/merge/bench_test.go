package merge_test

import (
	"fmt"
	"testing"

	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

// exports returns n records of a usual service. If they conflict, every second cluster has other
// values for everything that does not leave it out.
func exports(n int, conflicting bool) records {
	in := make(records, n)
	for i := range in {
		in[i] = record(fmt.Sprintf("cluster-%03d", (i*7)%n), i*13%n, sticky(60), withFamilies(ipv4, ipv6),
			withLabels("app.kubernetes.io/name", "web", "tier", "front"), withAnnotations("example.com/owner", "shop"),
			withPorts(port("http", tcp, 80), port("https", tcp, 443), port("dns", udp, 53)))
		if conflicting && i%2 == 1 {
			in[i] = record(string(in[i].ClusterID), i*13%n, withFamilies(ipv4), withLabels("tier", "back"),
				withAnnotations("example.com/owner", "other"), withPolicy("Local"), withDistribution("PreferClose"),
				withPorts(port("http", tcp, 8080), port("metrics", tcp, int32(9000+i))), withClusterSetIP(false, false))
		}
	}
	return in
}

func BenchmarkMerge(b *testing.B) {
	for _, kind := range []string{"agreeing", "conflicting"} {
		for _, n := range []int{1, 10, 100, 500} {
			in := exports(n, kind == "conflicting")
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					mergetest.Merge(in)
				}
			})
		}
	}
}

func BenchmarkCondition(b *testing.B) {
	r := mergetest.Merge(exports(500, true))
	b.ReportAllocs()
	for b.Loop() {
		r.Condition()
	}
}

func BenchmarkCarriesPort(b *testing.B) {
	r := mergetest.Merge(exports(500, true))
	b.ReportAllocs()
	for b.Loop() {
		r.CarriesPort("cluster-499", "dns", udp)
	}
}
