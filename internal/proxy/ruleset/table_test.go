package ruleset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fakeKernel holds elements and refuses what a kernel would refuse.
type fakeKernel struct {
	elements map[elementID]string
	classes  map[Class]bool
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{elements: map[elementID]string{}, classes: map[Class]bool{}}
}

func (m *fakeKernel) apply(c Changes) error {
	for _, e := range c.Delete {
		if v, ok := m.elements[elementID{e.Set, e.Key}]; !ok || v != e.Value {
			return fmt.Errorf("delete %+v: it is not there", e)
		}
		delete(m.elements, elementID{e.Set, e.Key})
	}
	for _, class := range c.NewClasses {
		if m.classes[class] {
			return fmt.Errorf("class %+v is there already", class)
		}
		m.classes[class] = true
	}
	for _, e := range c.Add {
		if _, ok := m.elements[elementID{e.Set, e.Key}]; ok {
			return fmt.Errorf("add %+v: it is there already", e)
		}
		if e.Set.Kind == Services {
			if class, ok := ParseClass(e.Set.IPv6, e.Data()); !ok || !m.classes[class] {
				return fmt.Errorf("service of unknown class %+v", class)
			}
		}
		m.elements[elementID{e.Set, e.Key}] = e.Value
	}
	for _, class := range c.OldClasses {
		delete(m.classes, class)
	}
	return nil
}

func (m *fakeKernel) dump() (elements []Element, classes []Class) {
	for key, value := range m.elements {
		elements = append(elements, Element{key.set, key.key, value})
	}
	for c := range m.classes {
		classes = append(classes, c)
	}
	return elements, classes
}

// check compares the kernel's content with the services: every index below the count leads to
// another endpoint.
func (m *fakeKernel) check(services map[string]*Service) error {
	var want int
	for name, s := range services {
		if s == nil {
			continue
		}
		for i := range s.Ports {
			p := &s.Ports[i]
			value, ok := m.elements[elementID{Set{Services, p.VIP.Is6()}, string(p.appendKey(nil))}]
			if ok != (len(p.Endpoints) > 0) {
				return fmt.Errorf("%s: %s is programmed: %t", name, p.Frontend, ok)
			}
			if _, silent := m.elements[elementID{Set{Silent, p.VIP.Is6()}, string(p.appendKey(nil))}]; silent != (p.Silent &&
				len(p.Endpoints) == 0) {
				return fmt.Errorf("%s: %s is silent: %t", name, p.Frontend, silent)
			}
			if !ok {
				continue
			}
			element := Element{Set{Services, p.VIP.Is6()}, "", value}
			if element.Comment() != name {
				return fmt.Errorf("%s: %s has the comment %q", name, p.Frontend, element.Comment())
			}
			class, _ := ParseClass(p.VIP.Is6(), element.Data())
			if int(class.Count) != len(p.Endpoints) || class.Affinity != p.Affinity {
				return fmt.Errorf("%s: %s has class %+v", name, p.Frontend, class)
			}
			want += len(p.Endpoints)
			var found []netip.AddrPort
			for index := range p.Endpoints {
				key := p.numberedKey(uint32(index))
				_, _, e, err := parseEndpoint(Element{Set{Endpoints, p.VIP.Is6()}, key, m.elements[elementID{Set{Endpoints, p.VIP.Is6()}, key}]})
				if err != nil {
					return fmt.Errorf("%s: index %d: %w", name, index, err)
				}
				found = append(found, e)
			}
			slices.SortFunc(found, netip.AddrPort.Compare)
			if !slices.Equal(found, p.Endpoints) {
				return fmt.Errorf("%s: %s leads to %v, not %v", name, p.Frontend, found, p.Endpoints)
			}
		}
	}
	for key := range m.elements {
		if key.set.Kind == Endpoints {
			want--
		}
	}
	if want != 0 {
		return fmt.Errorf("%d endpoints too few", want)
	}
	return nil
}

func endpoints(ipv6 bool, numbers ...int) []netip.AddrPort {
	var out []netip.AddrPort
	for _, n := range numbers {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		if ipv6 {
			addr = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)})
		}
		out = append(out, netip.AddrPortFrom(addr, 8080))
	}
	return out
}

func drawService(t *rapid.T, number int) *Service {
	s := &Service{}
	for _, ipv6 := range []bool{false, true} {
		vip := netip.AddrFrom4([4]byte{243, 0, 0, byte(number)})
		if ipv6 {
			vip = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x43, 15: byte(number)})
		}
		s.VIPs = append(s.VIPs, vip)
		for _, protocol := range []Protocol{TCP, UDP} {
			numbers := rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 0, 6, rapid.ID[int]).Draw(t, "endpoints")
			slices.Sort(numbers)
			p := Port{
				Frontend: Frontend{vip, protocol, 80}, Endpoints: endpoints(ipv6, numbers...),
				Affinity: rapid.SampledFrom([]uint32{0, 10}).Draw(t, "affinity"), Silent: rapid.Bool().Draw(t, "silent"),
			}
			s.Ports = append(s.Ports, p)
			if len(p.Endpoints) > 0 {
				s.Hairpin = append(s.Hairpin, p.Endpoints[0].Addr())
			}
		}
	}
	slices.SortFunc(s.Hairpin, netip.Addr.Compare)
	s.Hairpin = slices.Compact(s.Hairpin)
	return s
}

// ownedByOther reports whether an exchange gave the VIP of a number to another service.
func ownedByOther(services map[string]*Service, name string, number int) bool {
	for other, s := range services {
		if other != name && s != nil && s.VIPs[0].As4()[3] == byte(number) {
			return true
		}
	}
	return false
}

// checkEndpoints compares what the table answers about its frontends with the services.
func checkEndpoints(table *Table, services map[string]*Service) error {
	for name, s := range services {
		if s == nil {
			continue
		}
		for i := range s.Ports {
			got := slices.SortedFunc(slices.Values(table.Endpoints(s.Ports[i].Frontend)), netip.AddrPort.Compare)
			if !slices.Equal(got, s.Ports[i].Endpoints) {
				return fmt.Errorf("%s: the endpoints of %s are %v, not %v", name, s.Ports[i].Frontend, got, s.Ports[i].Endpoints)
			}
		}
	}
	return nil
}

// For any history of services and restarts, the kernel accepts each transaction and has the content
// of the services afterwards.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kernel, table := newFakeKernel(), NewTable(nil)
		services := map[string]*Service{}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
				table = NewTable(nil)
				if err := table.Load(kernel.dump()); err != nil {
					t.Fatal(err)
				}
				for name, s := range services {
					table.Set(name, s)
				}
				table.Sweep()
				if c := table.Changes(); len(c.Add)+len(c.Delete)+len(c.Stale.LostEndpoints) > 0 {
					t.Fatalf("a restart changes %+v", c)
				} else if err := kernel.apply(c); err != nil {
					t.Fatal(err)
				}
			}
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				number := rapid.IntRange(1, 4).Draw(t, "service")
				name := fmt.Sprint(number)
				if rapid.IntRange(0, 3).Draw(t, "exchange") == 0 {
					other := fmt.Sprint(number%4 + 1)
					services[name], services[other] = services[other], services[name]
					table.Set(name, services[name])
					table.Set(other, services[other])
					continue
				}
				if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
					delete(services, name)
					table.Set(name, nil)
					continue
				}
				if ownedByOther(services, name, number) {
					continue
				}
				services[name] = drawService(t, number)
				table.Set(name, services[name])
			}
			if err := kernel.apply(table.Changes()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(kernel.check(services), checkEndpoints(table, services)); err != nil {
				t.Fatal(err)
			}
			if c := table.Changes(); !c.Empty() {
				t.Fatalf("nothing changed, and yet %+v", c)
			}
		}
	})
}

func TestArrangeChangesLittle(t *testing.T) {
	for _, test := range []struct {
		name                 string
		old, endpoints, want []int
	}{
		{"first", nil, []int{1, 2, 3}, []int{1, 2, 3}},
		{"same in another order", []int{3, 1, 2}, []int{1, 2, 3}, []int{3, 1, 2}},
		{"one more", []int{3, 1}, []int{1, 2, 3}, []int{3, 1, 2}},
		{"first gone: the last takes its place", []int{1, 2, 3}, []int{2, 3}, []int{3, 2}},
		{"last gone", []int{1, 2, 3}, []int{1, 2}, []int{1, 2}},
		{"one replaced", []int{1, 2, 3}, []int{1, 3, 4}, []int{1, 4, 3}},
		{"none left", []int{1, 2}, nil, nil},
	} {
		got := assignIndexes(endpoints(false, test.old...), endpoints(false, test.endpoints...))
		if want := endpoints(false, test.want...); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}

// A change of one endpoint changes only its elements.
func TestOneChangeIsOneElement(t *testing.T) {
	table := NewTable(nil)
	port := func(e ...int) *Service {
		vip := netip.MustParseAddr("243.0.0.1")
		return &Service{VIPs: []netip.Addr{vip}, Ports: []Port{{Frontend: Frontend{vip, UDP, 53}, Endpoints: endpoints(false, e...)}}}
	}
	table.Set("svc", port(1, 2, 3))
	if c := table.Changes(); len(c.Add) != 5 || len(c.NewClasses) != 1 || len(c.Stale.LostEndpoints) != 0 || len(c.Stale.VIPs) != 1 {
		t.Errorf("a new service: %+v", c)
	}
	table.Set("svc", port(1, 3, 4))
	if c := table.Changes(); len(c.Add) != 1 || len(c.Delete) != 1 || len(c.NewClasses) != 0 || len(c.Stale.LostEndpoints) != 1 {
		t.Errorf("an endpoint replaced: %+v", c)
	}
	table.Set("svc", port(1, 3, 4, 5))
	if c := table.Changes(); len(c.Add) != 2 || len(c.Delete) != 1 || len(c.Stale.LostEndpoints) != 0 {
		t.Errorf("an endpoint added: %+v", c)
	}
	draining := port(1, 3, 4)
	draining.Ports[0].Draining = endpoints(false, 5)
	table.Set("svc", draining)
	if c := table.Changes(); len(c.Stale.LostEndpoints) != 0 {
		t.Errorf("an endpoint drains: %+v", c)
	}
	table.Set("svc", port(1, 3, 4))
	if c := table.Changes(); len(c.Stale.LostEndpoints) != 1 || !c.Empty() {
		t.Errorf("an endpoint that drained is gone: %+v", c)
	}
	table.Set("svc", nil)
	if c := table.Changes(); len(c.Add) != 0 || len(c.Delete) != 5 || len(c.Stale.LostEndpoints) != 1 {
		t.Errorf("the service removed: %+v", c)
	}
	for kind := range Kinds {
		if n := table.Size(Set{Kind: kind}); n != 0 {
			t.Errorf("%d elements of kind %d are left", n, kind)
		}
	}
}

// Packets that were refused leave no tracked connection.
func TestNewVIPInARange(t *testing.T) {
	table := NewTable([]netip.Prefix{netip.MustParsePrefix("243.0.0.0/8")})
	table.Set("inside", &Service{VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.2")}})
	if c := table.Changes(); !c.Stale.Empty() || len(c.Add) != 1 {
		t.Errorf("a VIP in the range: %+v", c)
	}
	table.Set("outside", &Service{VIPs: []netip.Addr{netip.MustParseAddr("244.0.0.2")}})
	if c := table.Changes(); len(c.Stale.VIPs) != 1 {
		t.Errorf("a VIP outside the range: %+v", c)
	}
	if all := table.AllFlows(); len(all.VIPs) != 2 || len(all.Ranges) != 1 {
		t.Errorf("all flows: %+v", all)
	}
}

func TestLoadRefusesWhatIsNotOurs(t *testing.T) {
	for _, e := range []Element{
		{Set{Endpoints, false}, "short", "value"}, {Set{Endpoints, true}, string(make([]byte, 16)), string(make([]byte, 8))},
		{Set{Endpoints, false}, string(slices.Repeat([]byte{0xff}, 16)), string(make([]byte, 8))},
	} {
		if NewTable(nil).Load([]Element{e}, nil) == nil {
			t.Errorf("accepted %+v", e)
		}
	}
}

func TestNumbersStay(t *testing.T) {
	all := endpoints(false, 1, 2, 3, 4, 5)
	numbers := hashNumbers(all)
	for i := range all {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		for j, n := range hashNumbers(rest) {
			if n != numbers[slices.Index(all, rest[j])] {
				t.Errorf("without %s, %s has another number", all[i], rest[j])
			}
		}
	}
	class := Class{Count: MaxEndpoints, Affinity: MaxAffinity}
	if got, ok := ParseClass(false, class.Key()); !ok || got != class {
		t.Errorf("%+v became %+v", class, got)
	}
	if _, ok := ParseClass(false, "not a class"); ok {
		t.Error("a text was taken for a class")
	}
}
