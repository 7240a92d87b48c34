package sandbox_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// TestTwoClusters runs all checks on one sandbox, removes it and creates it again. Each step needs
// the one before.
func TestTwoClusters(t *testing.T) {
	removeAtEnd(t)
	s := up(t, sandbox.Options{Clusters: 2, Bare: true})
	if want := []string{"east", "west"}; !slices.Equal(s.Clusters(), want) {
		t.Fatalf("clusters are %v, want %v", s.Clusters(), want)
	}
	for _, cluster := range s.Clusters() {
		runPod(t, s, cluster, "web", "serve")
		runPod(t, s, cluster, "client", "pause")
		mustKubectl(t, s, cluster, "expose", "pod", "web", "--port", "8080")
	}
	for _, step := range []struct {
		name string
		do   func(*testing.T, *testenv.Env)
	}{
		{"status", checkStatus},
		{"services and names", checkNames},
		{"flat network", checkFlatNetwork},
		{"logs", checkLogs},
		{"cut and heal", checkCut},
		{"delay", checkDelay},
		{"control plane stops, pods serve", checkControlPlane},
		{"node stops and boots", checkNode},
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
	if err := sandbox.Down(t.Context(), sandboxName, t.Output()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, slot); len(left) > 0 {
		t.Errorf("down left:\n%s", strings.Join(left, "\n"))
	}
}

func checkStatus(t *testing.T, s *testenv.Env) {
	status := s.Status(t.Context())
	if !status.Ready() {
		t.Fatalf("%+v", status)
	}
	zones := map[string]bool{}
	for _, c := range status.Clusters {
		zone := mustKubectl(t, s, c.Name, "get", "nodes", "-o", `jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}`)
		if zone != c.Zone || zones[zone] {
			t.Errorf("zone of %s is %q, want %q, which no other cluster has", c.Name, zone, c.Zone)
		}
		zones[zone] = true
		if c.RunningPods != 3 || c.Pods != 3 { // web, client and cluster DNS
			t.Errorf("%s has %d of %d pods running, want 3 of 3", c.Name, c.RunningPods, c.Pods)
		}
		if len(c.Processes) != 7 {
			t.Errorf("%s has processes %v", c.Name, c.Processes)
		}
	}
}

func checkNames(t *testing.T, s *testenv.Env) {
	for _, cluster := range s.Clusters() {
		for name, service := range map[string]string{"kubernetes.default": "kubernetes", "web": "web"} {
			want := mustKubectl(t, s, cluster, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
			if got := lookup(t, s, cluster, "client", name, "A"); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %v, want %s", cluster, name, got, want)
			}
		}
		answers(t, s, cluster, "client", "http://web:8080", cluster)
		answers(t, s, cluster, "web", "http://web:8080", cluster) // the server calls itself through its Service
	}
}

func checkFlatNetwork(t *testing.T, s *testenv.Env) {
	for _, pair := range [][2]string{{"east", "west"}, {"west", "east"}} {
		from, to := pair[0], pair[1]
		me, other := podIPs(t, s, from, "client")[0], podIPs(t, s, to, "web")[0]
		service := mustKubectl(t, s, to, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		for _, target := range []string{
			"http://" + other + ":8080", "tcp://" + other + ":9090", "udp://" + other + ":9090", "http://" + service + ":8080",
		} {
			if got := answers(t, s, from, "client", target, to); got.Clients[me] != 3 {
				t.Errorf("%s saw the clients %v, want %s, at %s", to, got.Clients, me, target)
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
	if len(got.Errors) != 1 || !strings.Contains(fmt.Sprint(got.Errors), "400 Bad Request") { // its answer to a request without TLS
		t.Errorf("a request of a pod of west to the API server of east: %v", got.Errors)
	}
}

func checkLogs(t *testing.T, s *testenv.Env) {
	mustKubectl(t, s, "east", "run", "speak", "--image", s.WorkloadImage(), "--restart=Never", "--", "lookup", "kubernetes.default")
	eventually(t, "the log of a pod", func() error {
		text, err := s.Kubectl(t.Context(), "east", "logs", "speak")
		if err == nil && !strings.Contains(text, "NOERROR") {
			err = fmt.Errorf("log: %s", text)
		}
		return err
	})
}

// checkLoad loads images from files. Pods use them by the name in the file or by its full form.
func checkLoad(t *testing.T, s *testenv.Env) {
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
	for _, c := range []struct{ file, pod, image, loaded string }{
		{whole, "loaded", "example.com/loaded:v1", "example.com/loaded:v1"},
		{short, "short", "someone/short:v1", "docker.io/someone/short:v1"},
	} {
		t.Chdir(t.TempDir()) // outside a checkout, where users have their images
		names, err := s.Load(t.Context(), c.file, t.Output())
		t.Chdir(root)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names, []string{c.loaded}) {
			t.Errorf("loaded %v, want %s", names, c.loaded)
		}
		for _, cluster := range s.Clusters() {
			mustKubectl(t, s, cluster, "run", c.pod, "--image", c.image)
			mustKubectl(t, s, cluster, "wait", "--for=condition=Ready", "pod/"+c.pod, "--timeout=60s")
		}
	}
}

// writeLayout writes an OCI archive as skopeo does: the annotation in which other tools write only
// a tag holds the whole name.
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

// checkRepair kills components. The next up starts them again with the objects they had.
func checkRepair(t *testing.T, s *testenv.Env) {
	killed := s.Status(t.Context()).Clusters[1].Processes
	for _, name := range []string{"etcd", "kube-apiserver", "kubelet", "containerd"} {
		if err := syscall.Kill(killed[name], syscall.SIGKILL); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	eventually(t, "the sandbox is not ready", func() error {
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
		t.Error("kube-proxy was not killed, but it was restarted")
	}
	answers(t, s, "west", "client", "http://web:8080", "west")
	_, err := sandbox.Up(t.Context(), sandbox.Options{Name: sandboxName, Clusters: 3})
	if err == nil || !strings.Contains(err.Error(), "exists with --clusters 2") {
		t.Errorf("up with other options: %v", err)
	}
}

// TestFamilies checks that dual-stack and IPv6 addresses work inside a cluster and between
// clusters.
func TestFamilies(t *testing.T) {
	for family, versions := range map[sandbox.Family][]int{sandbox.Dual: {4, 6}, sandbox.IPv6: {6}} {
		t.Run(string(family), func(t *testing.T) {
			removeAtEnd(t)
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
			if err := s.Cut(t.Context(), fault.Path{From: "east", To: "west"}); err != nil {
				t.Fatal(err)
			}
			for _, ip := range ips {
				address := netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)
				if got := call(t, s, "east", "web", "http://"+address.String()); got.Failed != 1 {
					t.Errorf("%s answers although it is cut off", ip)
				}
			}
			if err := s.Delay(t.Context(), fault.Path{From: "east", To: "west"}, time.Second); err != nil {
				t.Fatal(err)
			}
			checkDown(t) // also of the processes that delay packets
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

// canceller cancels a context when it is given a line of progress that contains the text.
type canceller struct {
	io.Writer
	text   string
	cancel context.CancelFunc
}

func (c canceller) Write(text []byte) (int, error) {
	if strings.Contains(string(text), c.text) {
		c.cancel()
	}
	return c.Writer.Write(text)
}

// TestDownAfterInterruptedUp checks that Down removes what an interrupted Up left, and a sandbox
// whose processes were all killed.
func TestDownAfterInterruptedUp(t *testing.T) {
	removeAtEnd(t)
	for _, line := range []string{"network is set up", "API server is ready", "images are loaded"} {
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := sandbox.Up(ctx, sandbox.Options{Name: sandboxName, Clusters: 1, Bare: true, Progress: canceller{t.Output(), line, cancel}})
			if err == nil || ctx.Err() == nil {
				t.Errorf("up should fail because it was interrupted at %q, got: %v", line, err)
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
