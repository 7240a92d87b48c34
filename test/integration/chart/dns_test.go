package chart

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/shipped"
)

// Without a CoreDNS configuration, or with one that Seamark must not change, join changes nothing
// and prints what to add.
func TestClusterDNS(t *testing.T) {
	b := newFixture(t, "east")
	b.must("broker deploy --context east")
	for _, test := range []struct {
		name   string
		config *corev1.ConfigMap
		action string
		says   string
	}{
		{"none", nil, "left", "clusterset.local:53 {"},
		{"the provider's", &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile"}},
			Data:       map[string]string{"Corefile": usualCorefile},
		}, "left", "clusterset.local:53 {"},
		{"with the zone", &corev1.ConfigMap{Data: map[string]string{
			"Corefile": usualCorefile + "clusterset.local:53 {\n    forward . 10.0.0.1\n}\n",
		}}, "left", "clusterset.local:53 {"},
		{"edited", &corev1.ConfigMap{Data: map[string]string{"Corefile": usualCorefile + "# BEGIN seamark\n"}}, "left", "clusterset.local:53 {"},
		{"without reload", &corev1.ConfigMap{Data: map[string]string{"Corefile": ".:53 {\n    whoami\n}\n"}}, "added",
			"rollout restart deployment coredns"},
		{"as usual", &corev1.ConfigMap{Data: map[string]string{"Corefile": usualCorefile}}, "added", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.config != nil {
				test.config.Namespace, test.config.Name = "kube-system", "coredns"
				b.create("east", test.config.DeepCopy())
				defer func() {
					if err := b.client("east").Delete(t.Context(), test.config); err != nil {
						t.Fatal(err)
					}
				}()
			}
			j := b.join("east", "east", "")
			if j.DNS.Action != test.action || !strings.Contains(j.DNS.Advice, test.says) || (test.says == "") != (j.DNS.Advice == "") {
				t.Errorf("the DNS is %s, with the advice %q", j.DNS.Action, j.DNS.Advice)
			}
			if test.config == nil {
				return
			}
			text := get(b, "east", "kube-system", "coredns", &corev1.ConfigMap{}).Data["Corefile"]
			if (text != test.config.Data["Corefile"]) != (test.action == "added") {
				t.Errorf("the Corefile is now\n%s", text)
			}
		})
	}
	if j := b.join("east", "east", "--no-dns"); j.DNS != nil {
		t.Errorf("with --no-dns: %+v", j.DNS)
	}
}

// The DNS server starts with the Corefile of the chart and answers with the permissions of its
// ServiceAccount.
func TestDNSWorksWithItsRoleAndCorefile(t *testing.T) {
	b := newFixture(t, "east")
	b.must("broker deploy --context east")
	j := b.join("east", "east", "--set zone=example.internal")
	if j.DNS.Action != "left" || !strings.Contains(j.DNS.Advice, "example.internal:53 {") {
		t.Errorf("without a known DNS, join returns %+v", j.DNS)
	}
	b.namespace("east", "shop")
	b.create("east", &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"243.0.0.7"},
			Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
	})
	server := b.startDNS("east")
	harness.Eventually(t, "the DNS server is ready", func() error { return checkOK(t.Context(), "http://"+server.ready+"/ready") })
	if err := checkOK(t.Context(), "http://"+server.health+"/health"); err != nil {
		t.Errorf("health: %v", err)
	}
	if err := checkOK(t.Context(), "http://"+server.metrics+"/metrics"); err != nil {
		t.Errorf("metrics: %v", err)
	}
	harness.Eventually(t, "the service is answered", func() error {
		query := new(dns.Msg).SetQuestion("web.shop.svc.example.internal.", dns.TypeA)
		answer, err := dns.ExchangeContext(t.Context(), query, server.dns)
		if err != nil {
			return err
		}
		if len(answer.Answer) != 1 || !strings.Contains(answer.Answer[0].String(), "243.0.0.7") {
			return fmt.Errorf("answered %v", answer)
		}
		return nil
	})
}

func checkOK(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s returned %s", url, response.Status)
	}
	return nil
}

// dnsServer holds the addresses of a DNS server.
type dnsServer struct{ dns, metrics, health, ready string }

// startDNS starts the DNS server as in a pod, but on free ports of the loopback interface.
func (b *fixture) startDNS(cluster string) dnsServer {
	b.t.Helper()
	config, _ := b.as(cluster, "seamark-dns")
	dir := b.t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	out := clientcmdapi.NewConfig()
	out.Clusters["own"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["own"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	out.Contexts["own"] = &clientcmdapi.Context{Cluster: "own", AuthInfo: "own"}
	out.CurrentContext = "own"
	if err := clientcmd.WriteToFile(*out, kubeconfig); err != nil {
		b.t.Fatal(err)
	}
	s := dnsServer{freeAddress(b.t), freeAddress(b.t), freeAddress(b.t), freeAddress(b.t)}
	_, port, _ := net.SplitHostPort(s.dns)
	text := get(b, cluster, chart.Namespace, "seamark-dns", &corev1.ConfigMap{}).Data["Corefile"]
	text, err := shipped.Adapt(text, shipped.Outside{Kubeconfig: kubeconfig, Port: port, Metrics: s.metrics, Health: s.health, Ready: s.ready})
	if err != nil {
		b.t.Fatal(err)
	}
	corefile := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(dnsBinary(b.t), "-conf", corefile)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := controlplane.StartChild(cmd); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return s
}

// freeAddress returns a free address of the loopback interface, for UDP and TCP.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func dnsBinary(t testing.TB) string {
	t.Helper()
	root, err := kubeparts.Root()
	if err != nil {
		t.Fatal(err)
	}
	// Read it, so that the cache of go test depends on it.
	if _, err := os.ReadFile(filepath.Join(root, "cmd", "seamark-dns", "main.go")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(harness.Dir(t), "seamark-dns")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "github.com/seamark-dev/seamark/cmd/seamark-dns")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build seamark-dns: %v\n%s", err, out)
	}
	return path
}
