package dns_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/harness"
)

// reference is the zone according to the specification: a list of records that is searched from its
// start for every query.
type reference struct {
	records    map[string]map[uint16][]string // by name, by type
	emptyNames []string                       // names that exist without records
}

func (r *reference) add(name string, qtype uint16, text string) {
	if r.records[name] == nil {
		r.records[name] = map[uint16][]string{}
	}
	if !slices.Contains(r.records[name][qtype], text) {
		r.records[name][qtype] = append(r.records[name][qtype], text)
	}
}

// answer returns the expected answer. A name exists if it has records or a name below it exists.
func (r *reference) answer(name string, qtype uint16) (rcode int, texts []string) {
	for _, text := range r.records[name][qtype] {
		if qtype == srv {
			text = fmt.Sprintf("0 %d %s", max(1, 100/len(r.records[name][qtype])), text)
		}
		texts = append(texts, fmt.Sprintf("%s 5 IN %s %s", name, dns.TypeToString[qtype], text))
	}
	slices.Sort(texts)
	for other := range r.records {
		if other == name || strings.HasSuffix(other, "."+name) {
			return success, texts
		}
	}
	for _, other := range r.emptyNames {
		if other == name || strings.HasSuffix(other, "."+name) {
			return success, nil
		}
	}
	return nxdomain, nil
}

// newReference returns the records of some objects.
func newReference(imports []*mcsv1beta1.ServiceImport, all []*discoveryv1.EndpointSlice) *reference {
	r := &reference{records: map[string]map[uint16][]string{}, emptyNames: []string{"svc.clusterset.local."}}
	for _, si := range imports {
		name := si.Name + "." + si.Namespace + ".svc.clusterset.local."
		var own []*discoveryv1.EndpointSlice
		for _, s := range all {
			if s.Labels[mcsv1beta1.LabelServiceName] == si.Name {
				own = append(own, s)
			}
		}
		switch {
		case si.Spec.Type == mcsv1beta1.Headless:
			r.headless(name, own)
		case si.Annotations[v1alpha1.AnnotationMode] == "classic":
			r.virtual(name, si.Spec.Ports, classicIPs(own))
		default:
			r.virtual(name, si.Spec.Ports, si.Spec.IPs)
			for _, ip := range si.Spec.IPs {
				reverse, _ := dns.ReverseAddr(ip)
				r.add(reverse, dns.TypePTR, name)
			}
		}
	}
	for _, types := range r.records { // an address has one name
		slices.Sort(types[dns.TypePTR])
		types[dns.TypePTR] = types[dns.TypePTR][:min(1, len(types[dns.TypePTR]))]
	}
	return r
}

// classicIPs returns the addresses of the clusters that serve. Those of weight 0 are used only if
// there are no others.
func classicIPs(own []*discoveryv1.EndpointSlice) []string {
	var weighty, weightless []string
	for _, s := range own {
		for _, e := range s.Endpoints {
			switch {
			case !*e.Conditions.Ready:
			case s.Annotations[v1alpha1.AnnotationWeight] == "0":
				weightless = append(weightless, e.Addresses...)
			default:
				weighty = append(weighty, e.Addresses...)
			}
		}
	}
	if len(weighty) > 0 {
		return weighty
	}
	return weightless
}

func typeOf(ip string) uint16 {
	if strings.Contains(ip, ":") {
		return aaaa
	}
	return a
}

func (r *reference) virtual(name string, ports []mcsv1beta1.ServicePort, ips []string) {
	r.emptyNames = append(r.emptyNames, name)
	for _, ip := range ips {
		r.add(name, typeOf(ip), ip)
	}
	for _, p := range ports {
		if p.Name == "" {
			continue
		}
		portName := fmt.Sprintf("_%s._%s.%s", p.Name, strings.ToLower(string(p.Protocol)), name)
		r.emptyNames = append(r.emptyNames, portName)
		if len(ips) > 0 {
			r.add(name, srv, fmt.Sprintf("%d %s", p.Port, name))
			r.add(portName, srv, fmt.Sprintf("%d %s", p.Port, name))
		}
	}
}

func (r *reference) headless(name string, own []*discoveryv1.EndpointSlice) {
	for _, s := range own {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		for _, e := range s.Endpoints {
			if !*e.Conditions.Ready {
				continue
			}
			ip := e.Addresses[0]
			first := strings.NewReplacer(".", "-", ":", "-").Replace(ip)
			if e.Hostname != nil {
				first = *e.Hostname
			}
			host := first + "." + source + "." + name
			r.add(name, typeOf(ip), ip)
			r.add(host, typeOf(ip), ip)
			for _, p := range s.Ports {
				if *p.Name == "" {
					continue
				}
				target := fmt.Sprintf("%d %s", *p.Port, host)
				r.add(name, srv, target)
				r.add(fmt.Sprintf("_%s._%s.%s", *p.Name, strings.ToLower(string(*p.Protocol)), name), srv, target)
			}
			if source != localCluster {
				reverse, _ := dns.ReverseAddr(ip)
				r.add(reverse, dns.TypePTR, host)
			}
		}
	}
}

var modelClusters = []string{localCluster, "west", "north.eu"}

// drawServices draws services of all kinds with endpoints in several clusters. Addresses may be
// shared.
func drawServices(rt *rapid.T, ns, prefix string) (imports []*mcsv1beta1.ServiceImport, all []*discoveryv1.EndpointSlice) {
	somePorts := []mcsv1beta1.ServicePort{port("http", 80), port("https", 443), port("udp", 80), port("", 99)}
	portsOf := rapid.SliceOfNDistinct(rapid.SampledFrom(somePorts), 0, 3,
		func(p mcsv1beta1.ServicePort) string { return p.Name })
	for i := range rapid.IntRange(2, 6).Draw(rt, "services") {
		name, ports := fmt.Sprintf("s%d", i), portsOf.Draw(rt, "ports")
		var si *mcsv1beta1.ServiceImport
		switch rapid.IntRange(0, 2).Draw(rt, "kind") {
		case 0:
			var ips []string
			for j := range rapid.IntRange(0, 2).Draw(rt, "addresses") {
				ips = append(ips, []string{fmt.Sprintf("243.%s.0.%d", prefix, i+1), fmt.Sprintf("fd00:243:%s::%d", prefix, i+1)}[j])
			}
			si = clusterSetIP(ns, name, ips, ports...)
		case 1:
			si = classic(ns, name, ports...)
		default:
			si = headless(ns, name, ports...)
		}
		imports = append(imports, si)
		all = append(all, drawSlices(rt, si, prefix)...)
	}
	return imports, all
}

func drawSlices(rt *rapid.T, si *mcsv1beta1.ServiceImport, prefix string) (all []*discoveryv1.EndpointSlice) {
	for _, source := range modelClusters {
		for n := range rapid.IntRange(0, 2).Draw(rt, "slices") {
			var endpoints []discoveryv1.Endpoint
			for range rapid.IntRange(0, 3).Draw(rt, "endpoints") {
				ip := fmt.Sprintf("10.%s.0.%d", prefix, rapid.IntRange(1, 9).Draw(rt, "address"))
				if n == 1 {
					ip = fmt.Sprintf("fd00:10:%s::%d", prefix, rapid.IntRange(1, 9).Draw(rt, "address"))
				}
				e := endpoint(ip)
				if rapid.Bool().Draw(rt, "named") {
					named(fmt.Sprintf("p-%d", rapid.IntRange(0, 2).Draw(rt, "hostname")))(&e)
				}
				if rapid.IntRange(0, 3).Draw(rt, "ready") == 0 {
					notReady(&e)
				}
				endpoints = append(endpoints, e)
			}
			s := imported(si, source, strconv.Itoa(n), endpoints...)
			if rapid.IntRange(0, 3).Draw(rt, "weight") == 0 {
				withWeight(s, "0")
			}
			all = append(all, s)
		}
	}
	return all
}

// questions returns all names of the services, names around them, and names that never exist.
func (r *reference) questions(ns string) (names []string) {
	for name := range r.records {
		for rest := name; strings.HasSuffix(rest, "."+ns+".svc.clusterset.local."); _, rest, _ = strings.Cut(rest, ".") {
			names = append(names, rest, "x."+rest)
		}
		if strings.HasSuffix(name, ".arpa.") {
			names = append(names, name)
		}
	}
	names = append(names, r.emptyNames...)
	for i := range 7 {
		for _, left := range []string{"", "_http._tcp.", "_tcp.", "_udp._udp.", "p-0.west.", "west.", "eu.", "north.eu.", "p-1.north.eu.",
			"p-1.north."} {
			names = append(names, fmt.Sprintf("%ss%d.%s.svc.clusterset.local.", left, i, ns))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Random imports and slices, created in random order: every name is answered as in the reference.
func TestModel(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": "6", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() == f.DefValue {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	cp := cluster(t)
	c, s := clientOf(t, cp), start(t, cp)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		ns := harness.Namespace(t, cp)
		imports, all := drawServices(rt, ns, strconv.Itoa(100+run))
		var objects []client.Object
		for _, si := range imports {
			objects = append(objects, si)
		}
		for _, es := range all {
			objects = append(objects, es)
		}
		create(t, c, rapid.Permutation(objects).Draw(rt, "order")...)
		want := newReference(imports, all)
		for _, name := range want.questions(ns) {
			for _, qtype := range []uint16{a, aaaa, srv, dns.TypePTR, dns.TypeTXT} {
				rcode, answer := want.answer(name, qtype)
				harness.Eventually(t, name+" "+dns.TypeToString[qtype], func() error {
					reply, err := s.exchange("udp", newQuery(name, qtype, func(m *dns.Msg) { m.SetEdns0(8000, false) }))
					if err != nil {
						return err
					}
					if reply.Rcode != rcode || !slices.Equal(recordTexts(reply.Answer), answer) {
						return fmt.Errorf("got %s %q, want %s %q",
							dns.RcodeToString[reply.Rcode], recordTexts(reply.Answer), dns.RcodeToString[rcode],
							answer)
					}
					return nil
				})
			}
		}
	})
}
