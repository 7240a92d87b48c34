package proxy_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// tableObject is a chain, set or map of the table, as nft lists it.
type tableObject struct {
	kind, name string
	elements   bool
	rules      []string // handles
}

// tableObjects lists the objects of the table, and its content without handles and order.
func (env *testEnv) tableObjects() (objects []*tableObject, content []string) {
	env.t.Helper()
	for line := range strings.Lines(env.nft("-a", "list", "table", "inet", "seamark")) {
		text, handle, _ := strings.Cut(strings.TrimSpace(line), " # handle ")
		content = append(content, strings.Trim(text, ",{} "))
		fields := strings.Fields(text)
		switch {
		case len(fields) == 3 && slices.Contains([]string{"chain", "set", "map"}, fields[0]):
			objects = append(objects, &tableObject{kind: fields[0], name: fields[1]})
		case strings.HasPrefix(text, "elements = "):
			objects[len(objects)-1].elements = true
		case handle != "" && len(objects) > 0:
			last := objects[len(objects)-1]
			last.rules = append(last.rules, handle)
		}
	}
	slices.Sort(content)
	return objects, content
}

// Other programs flush and change every object of the table. The next comparison restores it, in
// the same process and in a new one, and so does the check of the rules find it.
func TestDamageIsRepaired(t *testing.T) {
	env := newTestEnv(t)
	local := service(func(si *mcsv1beta1.ServiceImport) {
		si.Name, si.Spec.IPs = "local", []string{"243.4.4.4", "fd43::4"}
		si.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	plain := service(func(si *mcsv1beta1.ServiceImport) {
		si.Name, si.Spec.IPs = "plain", []string{"243.5.5.5", "fd43::5"}
	})
	sync := func() {
		t.Helper()
		env.syncer.SetRanges(clusterSetRanges)
		env.program(local, slicesOf("there", env.pods)...)
		env.program(plain, slicesOf("here", env.pods[:1])...)
		env.program(service(withAffinity(3600)), slicesOf("here", env.pods)...)
	}
	sync()
	objects, want := env.tableObjects()
	names := map[string]bool{}
	for _, o := range objects {
		names[o.name] = true
		if strings.HasPrefix(o.name, "layout-") || strings.HasPrefix(o.name, "clients") {
			continue // an empty chain, and what clients fill
		}
		for what := range env.damages(o) {
			for _, restart := range []bool{false, true} {
				for _, command := range env.damages(env.tableObject(o.name))[what] {
					env.nft(command)
				}
				if damage, err := env.syncer.CheckRules(); err != nil || o.kind == "chain" && damage == "" {
					t.Errorf("%s of %s: the check of the rules finds %q: %v", what, o.name, damage, err)
				}
				if restart {
					env.syncer = env.newSyncer()
				}
				env.syncer.RequireFullSync()
				sync()
				if _, got := env.tableObjects(); !slices.Equal(got, want) {
					t.Fatalf("%s of %s is not repaired (restart: %t):\n%s", what, o.name, restart, difference(got, want))
				}
			}
		}
	}
	for _, name := range []string{"refuse", "prerouting", "pick4-1", "keep6-3-3600s", "vips4", "classes6", "silent4", "members6"} {
		if !names[name] {
			t.Errorf("%s was not among the objects: %v", name, slices.Collect(maps.Keys(names)))
		}
	}
	for name, ipv6 := range families {
		if got := env.countServers(5, ipv6); len(got) != 1 {
			t.Errorf("%s: a client with affinity reached %v", name, got)
		}
		env.checkRefused(name, neverAllocated(ipv6))
	}
}

// tableObject returns an object of the table as it is now: each repair gives its rules new handles.
func (env *testEnv) tableObject(name string) *tableObject {
	objects, _ := env.tableObjects()
	return objects[slices.IndexFunc(objects, func(o *tableObject) bool { return o.name == name })]
}

// damages returns commands that change an object: all of it, and a part.
func (env *testEnv) damages(o *tableObject) map[string][]string {
	if o.kind == "chain" {
		damages := map[string][]string{
			"flush":      {"flush chain inet seamark " + o.name},
			"added rule": {"insert rule inet seamark " + o.name + " counter"},
		}
		if n := len(o.rules); n > 1 {
			damages["deleted rule"] = []string{fmt.Sprintf("delete rule inet seamark %s handle %s", o.name, o.rules[n-1])}
		}
		return damages
	}
	damages := map[string][]string{"flush": {fmt.Sprintf("flush %s inet seamark %s", o.kind, o.name)}}
	if o.elements {
		damages["deleted element"] = []string{fmt.Sprintf("delete element inet seamark %s { %s }", o.name, env.firstKey(o.name))}
	}
	return damages
}

// firstKey returns a key of a set or map in the syntax of nft.
func (env *testEnv) firstKey(name string) string {
	env.t.Helper()
	kind := "map"
	for _, set := range []string{"vips", "hairpin", "silent"} {
		if strings.HasPrefix(name, set) {
			kind = "set"
		}
	}
	_, elements, _ := strings.Cut(env.nft("list", kind, "inet", "seamark", name), "elements = { ")
	key, _, _ := strings.Cut(elements, ",")
	for _, end := range []string{" comment", " : ", " }"} {
		key, _, _ = strings.Cut(key, end)
	}
	return key
}

func difference(got, want []string) string {
	var lines []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// brokenFlows fails as long as its error is set, like a kernel without memory.
type brokenFlows struct {
	proxy.Flows
	err      error
	attempts int
}

func (b *brokenFlows) Delete(stale func(ruleset.Flow) bool) (int, error) {
	b.attempts++
	if b.err != nil {
		return 0, b.err
	}
	return b.Flows.Delete(stale)
}

// The rules are right when tracked connections cannot be deleted. That is no failure of a sync, is
// reported and repeated.
func TestConntrackFails(t *testing.T) {
	env := newTestEnv(t)
	flows := &brokenFlows{Flows: kernel.OpenConntrack(env.node.FD()), err: errors.New("no buffer space available")}
	env.syncer = proxy.NewSyncer(kernel.Open(env.node.FD(), env.masquerade), flows, env.log())
	env.set(service(), slicesOf("here", env.pods[:1])...)
	o, err := env.syncer.Sync()
	if err != nil || !errors.Is(o.FlowsError, flows.err) || o.FlowsWait <= 0 {
		t.Fatalf("a sync whose connections cannot be deleted: %+v, %v", o, err)
	}
	flow := env.flowTo("a")
	env.set(service(), slicesOf("here", env.pods[1:2])...)
	if o, err = env.syncer.Sync(); err != nil || o.FlowsWait <= 0 || flows.attempts != 1 {
		t.Errorf("an attempt is not repeated at once: %+v, %v, %d attempts", o, err, flows.attempts)
	}
	if got := env.countServers(5, false); got["b"] != 5 {
		t.Errorf("the rules are not in force: %v", got)
	}
	flows.err = nil
	env.sync()
	env.checkFlow("after the failure", flow, "b")
	if f := (ruleset.Frontend{VIP: vip4, Protocol: ruleset.UDP, Port: servicePort}); !slices.Equal(env.syncer.Endpoints(f),
		[]netip.AddrPort{netip.AddrPortFrom(env.pods[1].IPv4, targetPort)}) {
		t.Errorf("the endpoints are %v", env.syncer.Endpoints(f))
	}
}
