package dataplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// coreDNS is a cluster's own DNS: CoreDNS with its kubernetes plugin, in another process.
type coreDNS struct {
	t       *testing.T
	address string
}

func startCoreDNS(t *testing.T, m *fleet.Member) coreDNS {
	t.Helper()
	const block = ".:%s {\n bind 127.0.0.1\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  kubeconfig %s\n" +
		"  fallthrough in-addr.arpa ip6.arpa\n }\n}\n"
	address, _ := dnsprocess.Start(t, func(port string) string { return fmt.Sprintf(block, port, m.CP.Kubeconfig()) })
	return coreDNS{t, address}
}

// query returns the data of the answer's records in lower case (RFC 4343), each once.
func (d coreDNS) query(name string, qtype uint16) ([]string, error) {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	reply, _, err := (&dns.Client{Timeout: 2 * time.Second}).Exchange(m, d.address)
	if err != nil {
		return nil, err
	}
	if reply.Rcode != dns.RcodeSuccess {
		return nil, fmt.Errorf("%s: %s", name, dns.RcodeToString[reply.Rcode])
	}
	var out []string
	for _, rr := range reply.Answer {
		fields := strings.Fields(rr.String())
		out = append(out, strings.ToLower(fields[len(fields)-1]))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// checkReverse returns an error unless the reverse names of an address are these, and each of them
// has the address.
func (d coreDNS) checkReverse(address string, want ...string) error {
	name, err := dns.ReverseAddr(address)
	if err != nil {
		return err
	}
	got, err := d.query(name, dns.TypePTR)
	if err != nil {
		return err
	}
	// The first cluster has the broker, too, and with it slices that give the pods one more name.
	got = slices.DeleteFunc(got, func(n string) bool { return strings.HasSuffix(n, "."+objects.DefaultNamespace+".svc.cluster.local.") })
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("%s has the names %v, want %v", address, got, want)
	}
	for _, name := range got {
		if addresses, err := d.query(name, dns.TypeA); err != nil || !slices.Contains(addresses, address) {
			return fmt.Errorf("%s, a name of %s, has the addresses %v (%w)", name, address, addresses, err)
		}
	}
	return nil
}

// Imported slices hold addresses of the cluster's own pods, too. CoreDNS makes a reverse name of
// every slice: a name that cannot be packed would cost the pod its other names.
func TestExportsKeepTheReverseNamesOfOwnPods(t *testing.T) {
	east, west, north := clusterset(t)
	for i, m := range []*fleet.Member{east, west, north} {
		dataPlane := objects.DataPlanes[i] // as clusterset gives them out
		t.Run(string(dataPlane.Name), func(t *testing.T) {
			ns := fleet.NewNamespace(t, east, west, north)
			server := startCoreDNS(t, m)
			pod := func(n int) string { return fmt.Sprintf("10.%d.7.%d", 60+i, n) }
			db := fleet.NewService(ns, "db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
			slice := fleet.NewSlice(db, "abc", pod(1))
			slice.Endpoints[0].Hostname = ptr.To("db-0")
			m.Create(t, db, slice)
			m.Serve(t, fleet.NewService(ns, "web"), pod(2))
			legacy := fleet.NewService(ns, "legacy")
			m.Serve(t, legacy, pod(3))
			suffix := "." + ns + ".svc.cluster.local."
			names := map[string][]string{
				pod(1):                {"db-0.db" + suffix},
				pod(2):                {strings.ReplaceAll(pod(2), ".", "-") + ".web" + suffix},
				pod(3):                {strings.ReplaceAll(pod(3), ".", "-") + ".legacy" + suffix},
				legacy.Spec.ClusterIP: {"legacy" + suffix},
			}
			check := func(when string) {
				for address, want := range names {
					harness.Eventually(t, "the reverse names of "+address+" "+when, func() error { return server.checkReverse(address, want...) })
				}
			}
			check("before the export")

			m.Export(t, ns, "db")
			m.Export(t, ns, "web")
			m.Export(t, ns, "legacy", func(e *mcsv1beta1.ServiceExport) {
				e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
			})
			other := []*fleet.Member{west, north, east}[i]
			for service, address := range map[string]string{"db": pod(1), "web": pod(2), "legacy": legacy.Spec.ClusterIP} {
				m.AwaitImport(t, ns, service, map[string][]string{m.ID: {address}})
				other.AwaitImport(t, ns, service, map[string][]string{m.ID: {address}})
			}
			if dataPlane.DerivesService { // a second Service with the pod
				names[pod(2)] = append(names[pod(2)], strings.ReplaceAll(pod(2), ".", "-")+"."+objects.DerivedServiceName("web")+suffix)
			}
			check("after the export")

			// Other clusters hold slices of these pods, and must not take them for pods of their
			// own.
			far := startCoreDNS(t, other)
			local := fleet.NewSlice(db, "abc", fmt.Sprintf("10.%d.8.1", 60+i))
			local.Endpoints[0].Hostname = ptr.To("db-0")
			other.Create(t, fleet.NewService(ns, "db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), local)
			for _, address := range []string{pod(1), pod(2)} {
				reverse, err := dns.ReverseAddr(address)
				if err != nil {
					t.Fatal(err)
				}
				harness.Eventually(t, "an answer for "+address+" in "+other.ID, func() error {
					names, err := far.query(reverse, dns.TypePTR)
					for _, name := range names {
						if addresses, err := far.query(name, dns.TypeA); err == nil && !slices.Contains(addresses, address) {
							return fmt.Errorf("%s has the name of %v: %s", address, addresses, name)
						}
					}
					return err
				})
			}
		})
	}
}
