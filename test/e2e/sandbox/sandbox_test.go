package sandbox_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// One sandbox, from its beginning to its end and once more: each step stands on the one before.
func TestTwoClusters(t *testing.T) {
	downAtLast(t)
	s := up(t, sandbox.Options{Clusters: 2, Bare: true})
	if want := []string{"east", "west"}; !slices.Equal(s.Clusters(), want) {
		t.Fatalf("clusters are %v, not %v", s.Clusters(), want)
	}
	for _, cluster := range s.Clusters() {
		runPod(t, s, cluster, "web", "serve")
		runPod(t, s, cluster, "client", "pause")
		mustKubectl(t, s, cluster, "expose", "pod", "web", "--port", "8080")
	}
	for _, step := range []struct {
		name string
		do   func(*testing.T, *sandbox.Sandbox)
	}{
		{"status", checkStatus},
		{"services and names", checkNames},
		{"flat network", checkFlatNetwork},
		{"logs", checkLogs},
		{"partition and heal", checkPartition},
		{"load", checkLoad},
		{"up repairs", checkRepair},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, s) }) {
			return
		}
	}
	checkDown(t)
	s = up(t, sandbox.Options{Clusters: 2, Bare: true})
	if status := s.Status(t.Context()); !status.Ready() {
		t.Errorf("after a second up: %+v", status)
	}
	checkDown(t)
}

func checkDown(t *testing.T) {
	t.Helper()
	slot := slotOf(t)
	if err := sandbox.Down(t.Context(), sandboxName, testLog{t}); err != nil {
		t.Fatal(err)
	}
	if left := traces(t, slot); len(left) > 0 {
		t.Errorf("down left:\n%s", strings.Join(left, "\n"))
	}
}

func checkStatus(t *testing.T, s *sandbox.Sandbox) {
	status := s.Status(t.Context())
	if !status.Ready() {
		t.Fatalf("%+v", status)
	}
	zones := map[string]bool{}
	for _, c := range status.Clusters {
		zone := mustKubectl(t, s, c.Name, "get", "nodes", "-o", `jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}`)
		if zone != c.Zone || zones[zone] {
			t.Errorf("zone of %s is %q, want %q and no other's", c.Name, zone, c.Zone)
		}
		zones[zone] = true
		if c.RunningPods != 3 || c.Pods != 3 { // ours and cluster DNS
			t.Errorf("%s has %d of %d pods running, want 3 of 3", c.Name, c.RunningPods, c.Pods)
		}
		if len(c.Processes) != 7 {
			t.Errorf("%s has processes %v", c.Name, c.Processes)
		}
	}
}

func checkNames(t *testing.T, s *sandbox.Sandbox) {
	for _, cluster := range s.Clusters() {
		for name, service := range map[string]string{"kubernetes.default": "kubernetes", "web": "web"} {
			want := mustKubectl(t, s, cluster, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
			if got := lookup(t, s, cluster, "client", name, "A"); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %v, want %s", cluster, name, got, want)
			}
		}
		answers(t, s, cluster, "client", "http://web:8080", cluster)
		answers(t, s, cluster, "web", "http://web:8080", cluster) // itself, over its own service
	}
}

func checkFlatNetwork(t *testing.T, s *sandbox.Sandbox) {
	for _, pair := range [][2]string{{"east", "west"}, {"west", "east"}} {
		from, to := pair[0], pair[1]
		me, other := podIPs(t, s, from, "client")[0], podIPs(t, s, to, "web")[0]
		service := mustKubectl(t, s, to, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		for _, target := range []string{"http://" + other + ":8080", "tcp://" + other + ":9090", "udp://" + other + ":9090", "http://" + service + ":8080"} {
			if got := answers(t, s, from, "client", target, to); got.Clients[me] != 3 {
				t.Errorf("%s saw %v, not %s, behind %s", to, got.Clients, me, target)
			}
		}
	}
	// A member's pods talk to the broker's API server on the first node.
	server, err := s.Server("east")
	if err != nil {
		t.Fatal(err)
	}
	address := strings.Replace(server, "https://", "http://", 1)
	got := call(t, s, "west", "client", address)
	if len(got.Errors) != 1 || !strings.Contains(fmt.Sprint(got.Errors), "400 Bad Request") { // what it tells who speaks no TLS
		t.Errorf("the API server of east says to a pod of west: %v", got.Errors)
	}
}

func checkLogs(t *testing.T, s *sandbox.Sandbox) {
	mustKubectl(t, s, "east", "run", "speak", "--image", s.WorkloadImage(), "--restart=Never", "--", "lookup", "kubernetes.default")
	eventually(t, "the log of a pod", func() error {
		text, err := kubectl(t, s, "east", "logs", "speak")
		if err == nil && !strings.Contains(text, "NOERROR") {
			err = fmt.Errorf("log: %s", text)
		}
		return err
	})
}

func checkPartition(t *testing.T, s *sandbox.Sandbox) {
	target := map[string]string{}
	for _, cluster := range s.Clusters() {
		target[cluster] = "http://" + podIPs(t, s, cluster, "web")[0] + ":8080"
	}
	if err := s.Partition(t.Context(), "west", "east"); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"east": "west", "west": "east"} {
		if got := call(t, s, from, "client", target[to], "--count", "2"); got.Failed != 2 {
			t.Errorf("%s is cut off from %s, but: %+v", from, to, got)
		}
		answers(t, s, from, "client", target[from], from)
	}
	if got := s.Status(t.Context()).Partitions; !slices.Equal(got, []sandbox.Pair{{"east", "west"}}) {
		t.Errorf("partitions: %v", got)
	}
	if err := s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"east": "west", "west": "east"} {
		answers(t, s, from, "client", target[to], to)
	}
	if err := s.Partition(t.Context(), "east", "moon"); err == nil || !strings.Contains(err.Error(), "choose from east, west") {
		t.Errorf("partition from a cluster that is not there: %v", err)
	}
}

// An image that was never in a registry runs after it was loaded, under the name in its file, or the long form of it.
func checkLoad(t *testing.T, s *sandbox.Sandbox) {
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	built, err := image.Builder{Root: root, Version: "loaded"}.Build(t.Context(), image.Workload(), image.HostArchitecture())
	if err != nil {
		t.Fatal(err)
	}
	whole, short := filepath.Join(t.TempDir(), "whole.tar"), filepath.Join(t.TempDir(), "short.tar")
	if err := image.WriteTar(whole, "example.com/loaded:v1", built); err != nil {
		t.Fatal(err)
	}
	writeLayout(t, short, "someone/short:v1", built)
	for _, c := range []struct{ file, pod, asked, told string }{
		{whole, "loaded", "example.com/loaded:v1", "example.com/loaded:v1"},
		{short, "short", "someone/short:v1", "docker.io/someone/short:v1"},
	} {
		t.Chdir(t.TempDir()) // where images lie, which is no checkout
		names, err := s.Load(t.Context(), c.file, testLog{t})
		t.Chdir(root)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names, []string{c.told}) {
			t.Errorf("told %v instead of %s", names, c.told)
		}
		for _, cluster := range s.Clusters() {
			mustKubectl(t, s, cluster, "run", c.pod, "--image", c.asked)
			mustKubectl(t, s, cluster, "wait", "--for=condition=Ready", "pod/"+c.pod, "--timeout=60s")
		}
	}
}

// writeLayout writes an OCI archive as skopeo does: its name is where other tools have a tag only.
func writeLayout(t *testing.T, file, name string, built v1.Image) {
	t.Helper()
	dir := t.TempDir()
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := target.AppendImage(built, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(f)
	if err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// What was killed runs again after another up, with the objects it had.
func checkRepair(t *testing.T, s *sandbox.Sandbox) {
	killed := s.Status(t.Context()).Clusters[1].Processes
	for _, name := range []string{"etcd", "kube-apiserver", "kubelet", "containerd"} {
		if err := syscall.Kill(killed[name], syscall.SIGKILL); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	eventually(t, "the status notices", func() error {
		if s.Status(t.Context()).Ready() {
			return fmt.Errorf("still ready")
		}
		return nil
	})
	s = up(t, sandbox.Options{Clusters: 2, Bare: true})
	status := s.Status(t.Context())
	if !status.Ready() {
		t.Fatalf("%+v", status)
	}
	if status.Clusters[1].Processes["kube-proxy"] != killed["kube-proxy"] {
		t.Error("a process that ran well was started again")
	}
	answers(t, s, "west", "client", "http://web:8080", "west")
	_, err := sandbox.Up(t.Context(), sandbox.Options{Name: sandboxName, Clusters: 3})
	if err == nil || !strings.Contains(err.Error(), "exists with --clusters 2") {
		t.Errorf("up with other options: %v", err)
	}
}

// Addresses of both families, or of IPv6 alone, work inside a cluster and between clusters.
func TestFamilies(t *testing.T) {
	for family, versions := range map[sandbox.Family][]int{sandbox.Dual: {4, 6}, sandbox.IPv6: {6}} {
		t.Run(string(family), func(t *testing.T) {
			downAtLast(t)
			s := up(t, sandbox.Options{Clusters: 2, Bare: true, Family: family})
			for _, cluster := range s.Clusters() {
				runPod(t, s, cluster, "web", "serve")
				mustKubectl(t, s, cluster, "expose", "pod", "web", "--port", "8080")
				dns := mustKubectl(t, s, cluster, "get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIPs[*]}")
				checkVersions(t, strings.Fields(dns), versions)
				answers(t, s, cluster, "web", "http://web:8080", cluster)
			}
			ips := podIPs(t, s, "west", "web")
			checkVersions(t, ips, versions)
			for _, ip := range ips {
				address := netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)
				answers(t, s, "east", "web", "http://"+address.String(), "west")
			}
			if err := s.Partition(t.Context(), "east", "west"); err != nil {
				t.Fatal(err)
			}
			for _, ip := range ips {
				address := netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)
				if got := call(t, s, "east", "web", "http://"+address.String()); got.Failed != 1 {
					t.Errorf("%s answers over a partition", ip)
				}
			}
			checkDown(t)
		})
	}
}

func checkVersions(t *testing.T, ips []string, versions []int) {
	t.Helper()
	var got []int
	for _, text := range ips {
		if netip.MustParseAddr(text).Is4() {
			got = append(got, 4)
		} else {
			got = append(got, 6)
		}
	}
	if !slices.Equal(got, versions) {
		t.Errorf("addresses %v are of versions %v, want %v", ips, got, versions)
	}
}

// canceller ends a context when a line of progress comes.
type canceller struct {
	testLog
	line   string
	cancel context.CancelFunc
}

func (c canceller) Write(text []byte) (int, error) {
	if strings.Contains(string(text), c.line) {
		c.cancel()
	}
	return c.testLog.Write(text)
}

// Down works on what an up left that was interrupted anywhere, and on processes that were all killed.
func TestDownAfterTrouble(t *testing.T) {
	downAtLast(t)
	for _, line := range []string{"network is set up", "API server is ready", "images are loaded"} {
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := sandbox.Up(ctx, sandbox.Options{Name: sandboxName, Clusters: 1, Bare: true, Progress: canceller{testLog{t}, line, cancel}})
			if err == nil || ctx.Err() == nil {
				t.Errorf("up was to be interrupted at %q, but ended with: %v", line, err)
			}
			checkDown(t)
		})
	}
	t.Run("killed", func(t *testing.T) {
		s := up(t, sandbox.Options{Clusters: 1, Bare: true})
		runPod(t, s, "east", "client", "pause")
		for _, c := range s.Status(t.Context()).Clusters {
			for name, pid := range c.Processes {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		checkDown(t)
	})
}
