//go:build linux

package sandbox

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAddressesNeverOverlap checks that no two clusters of any sandboxes on a machine share an
// address.
func TestAddressesNeverOverlap(t *testing.T) {
	var all []netip.Prefix
	for slot := range maxSlots {
		p := newPlan("x", "/d", "/r", slot, maxClusters, Dual)
		for _, ip := range p.hostIPs() {
			all = append(all, netip.PrefixFrom(ip.Addr(), ip.Addr().BitLen()))
		}
		for _, c := range p.clusters {
			all = append(all, c.ranges()...)
			for i, pods := range c.podCIDRs {
				if !p.allPods()[i].Contains(pods.Addr()) {
					t.Errorf("pods of %s in slot %d are not in %v", c.name, slot, p.allPods())
				}
			}
		}
	}
	for i, a := range all {
		if a != a.Masked() {
			t.Errorf("%s is not a range", a)
		}
		for _, b := range all[i+1:] {
			if a.Overlaps(b) {
				t.Fatalf("%s overlaps %s", a, b)
			}
		}
	}
}

// TestNamesFitTheKernel checks the kernel's limits: 15 characters for names of links, 107 for paths
// of sockets.
func TestNamesFitTheKernel(t *testing.T) {
	longest := strings.Repeat("x", 12)
	if !sandboxName.MatchString(longest) || sandboxName.MatchString(longest+"x") {
		t.Error("a name may have 12 characters, and not 13")
	}
	p := newPlan(longest, "/d/"+longest, runRoot+"/"+longest, maxSlots-1, maxClusters, IPv4)
	for _, c := range p.clusters {
		if len(c.veth) > 15 || len(p.bridge()) > 15 {
			t.Errorf("links %s and %s", c.veth, p.bridge())
		}
		shim := c.runDir + "/s/" + strings.Repeat("0", 64)
		if len(c.containerdSocket()+".ttrpc") > 107 || len(shim) > 107 {
			t.Errorf("%s: %d, %s: %d", c.containerdSocket(), len(c.containerdSocket()), shim, len(shim))
		}
	}
}

func TestRoutesToOtherClusters(t *testing.T) {
	p := newPlan("x", "/d", "/r", 1, 3, Dual)
	var got []string
	for _, r := range p.routes(p.clusters[1]) {
		got = append(got, r.to.String()+" via "+r.via.String())
	}
	want := []string{
		"0.0.0.0/0 via 172.30.1.1",
		"10.201.16.0/20 via 172.30.1.11", "10.221.16.0/20 via 172.30.1.11",
		"10.201.48.0/20 via 172.30.1.13", "10.221.48.0/20 via 172.30.1.13",
		"::/0 via fd5e:1::1",
		"fd5e:1:1:1::/64 via fd5e:1::b", "fd5e:1:1:2::/112 via fd5e:1::b",
		"fd5e:1:3:1::/64 via fd5e:1::d", "fd5e:1:3:2::/112 via fd5e:1::d",
	}
	if !slices.Equal(got, want) {
		t.Errorf("routes of west:\n%s", strings.Join(got, "\n"))
	}
}

func TestClusterAddresses(t *testing.T) {
	for _, test := range []struct {
		family      Family
		server, dns string
	}{
		{IPv4, "https://172.30.0.11:6443", "10.220.16.10"},
		{IPv6, "https://[fd5e::b]:6443", "fd5e:0:1:2::a"},
		{Dual, "https://172.30.0.11:6443", "10.220.16.10"},
	} {
		c := newPlan("x", "/d", "/r", 0, 1, test.family).clusters[0]
		if c.server() != test.server || c.dnsIP(0).String() != test.dns {
			t.Errorf("%s: API server %s, DNS %s", test.family, c.server(), c.dnsIP(0))
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"1 to 8 clusters":       {Clusters: 9},
		`no IP family "ipv5"`:   {Family: "ipv5"},
		`no data plane "magic"`: {DataPlane: "magic"},
	} {
		if err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	var o Options
	err := o.complete()
	if err != nil || o.Name != DefaultName || o.Clusters != DefaultClusters || o.Family != IPv4 || o.DataPlane != "service" {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	if _, err := dirOf("Not/A/Name"); err == nil {
		t.Error("a name with slashes was accepted")
	}
}

func TestFreeSlot(t *testing.T) {
	taken := map[string]bool{"seamark0": true, "seamark1": true}
	if slot, err := freeSlot(func(link string) bool { return taken[link] }); err != nil || slot != 2 {
		t.Errorf("slot %d, %v", slot, err)
	}
	if _, err := freeSlot(func(string) bool { return true }); err == nil {
		t.Error("found a slot although all are taken")
	}
}

func TestMissingPackages(t *testing.T) {
	got := missingPackages(func(program string) bool { return program != "nft" && program != "runc" })
	if !slices.Equal(got, []string{"runc", "nftables"}) {
		t.Errorf("missing: %v", got)
	}
}

// TestGoIsFoundWhereItsInstallerPutIt covers sudo, whose PATH lacks the folder of Go's installer.
func TestGoIsFoundWhereItsInstallerPutIt(t *testing.T) {
	installer := t.TempDir()
	t.Setenv("PATH", "/usr/sbin")
	if err := ensureGo(installer); err == nil || !strings.Contains(err.Error(), "sudo env PATH=$PATH") {
		t.Errorf("without Go: %v", err)
	}
	if err := os.WriteFile(filepath.Join(installer, "go"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ensureGo(installer); err != nil || os.Getenv("PATH") != "/usr/sbin:"+installer {
		t.Errorf("PATH is %s, %v", os.Getenv("PATH"), err)
	}
	if err := ensureGo("/nowhere"); err != nil {
		t.Errorf("with Go on the PATH: %v", err)
	}
}

func TestUnescape(t *testing.T) {
	for text, want := range map[string]string{`/a\040b`: "/a b", `/a\134b`: `/a\b`, `/plain`: "/plain", `/end\04`: `/end\04`} {
		if got := unescape(text); got != want {
			t.Errorf("%s became %s, not %s", text, got, want)
		}
	}
}

func TestNodeReady(t *testing.T) {
	node := func(status corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: "no CNI"}}
		return n
	}
	if err := nodeReady(node(corev1.ConditionTrue)); err != nil {
		t.Error(err)
	}
	for want, n := range map[string]*corev1.Node{
		"no CNI":                 node(corev1.ConditionFalse),
		"taint x":                node(corev1.ConditionTrue, corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}),
		"has no condition Ready": {},
	} {
		if err := nodeReady(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// TestProcessIdentity checks that a process is identified by more than its id, and that a zombie is
// not alive.
func TestProcessIdentity(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || !me.alive() {
		t.Fatalf("%+v is not alive: %v", me, err)
	}
	for _, other := range []process{{me.PID, me.Start + 1, me.Boot}, {me.PID, me.Start, "another boot"}} {
		if other.alive() {
			t.Errorf("%+v is mistaken for this process", other)
		}
	}
	child, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := identify(child.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.kill(time.Second); err != nil { // it is a zombie then, because this process has not waited for it
		t.Error(err)
	}
	if p.alive() {
		t.Error("the process is alive after it was killed")
	}
	if _, err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNeedsRoot checks that without root every command fails at once and says why.
func TestNeedsRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		if err := syscall.Seteuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Seteuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	_, up := Up(t.Context(), Options{})
	_, open := Open(DefaultName)
	for _, err := range []error{up, open, Down(t.Context(), DefaultName, nil)} {
		if err == nil || !strings.Contains(err.Error(), "as root") {
			t.Errorf("without root: %v", err)
		}
	}
}
