package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

const usualCorefile = `.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
    }
    forward . /etc/resolv.conf
    cache 30
    reload
}
`

// A cluster that joined, was upgraded with helm and left has the same objects as before, except for
// the CRDs and its id.
func TestJoinUpgradeLeave(t *testing.T) {
	b := newFixture(t, "east")
	b.create("east", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data: map[string]string{"Corefile": usualCorefile}})
	harness.Eventually(t, "the default namespace is complete", func() error {
		if _, ok := b.contents("east")["configmaps default/kube-root-ca.crt"]; !ok {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	before := b.contents("east")
	b.must("broker deploy --context east")

	first := b.join("east", "east", "--image example.org/seamark:v1 --set dns.replicas=3,dns.ttl=9,dns.locality={headless}")
	if first.Release.Action != chart.Installed || first.Release.Revision != 1 {
		t.Errorf("joining for the first time: %+v", first.Release)
	}
	t.Run("what is installed", func(t *testing.T) { checkInstalled(t, b, first) })
	t.Run("again", func(t *testing.T) { checkJoinAgain(t, b) })
	t.Run("repair", func(t *testing.T) {
		if err := b.client("east").Delete(t.Context(),
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: "seamark-dns"}}); err != nil {
			t.Fatal(err)
		}
		if again := b.join("east", "east", ""); again.Release.Action != chart.Upgraded {
			t.Errorf("joining after a Deployment was deleted: %+v", again.Release)
		}
		get(b, "east", chart.Namespace, "seamark-dns", &appsv1.Deployment{})
	})
	t.Run("beacons", func(t *testing.T) { checkBeaconKey(t, b) })
	t.Run("helm", func(t *testing.T) { checkHelm(t, b) })
	t.Run("data plane", func(t *testing.T) { checkDataPlane(t, b) })
	t.Run("kept options", func(t *testing.T) {
		text := get(b, "east", chart.Namespace, "seamark-dns", &corev1.ConfigMap{}).Data["Corefile"]
		if !strings.Contains(text, " ttl 9\n") || !strings.Contains(text, " locality headless\n") {
			t.Errorf("the upgrades lost what was chosen:\n%s", text)
		}
	})
	t.Run("not ready", func(t *testing.T) {
		o := b.run("join --broker-context east --context east --timeout 1s")
		if o.Code != 1 || !strings.Contains(o.Stderr, "not ready after 1s") ||
			!strings.Contains(o.Stderr, "waiting: Deployment seamark-agent: 0 of 2 ready") {
			t.Errorf("exit %d: %s", o.Code, o.Stderr)
		}
	})

	left := b.must("leave --context east --broker-context east")
	if !strings.Contains(left.Stdout, "release        seamark in namespace seamark-system uninstalled") ||
		strings.Contains(left.Stdout, "stop its seamark-agent") {
		t.Errorf("leave says:\n%s", left.Stdout)
	}
	b.must("broker remove --context east")
	if config := get(b, "east", "kube-system", "coredns", &corev1.ConfigMap{}); config.Data["Corefile"] != usualCorefile {
		t.Errorf("the cluster's DNS is left with\n%s", config.Data["Corefile"])
	}
	harness.Eventually(t, "nothing is left behind", func() error { return nothingLeft(b, "east", before) })
	if leases := b.leases("east", chart.Namespace); len(leases) > 0 {
		t.Errorf("leases are left: %v", leases)
	}
}

// nothingLeft returns an error that names objects which a cluster did not have before and which
// should not stay.
func nothingLeft(b *fixture, cluster string, before map[string]string) error {
	stays := []string{
		"customresourcedefinitions /clusterclaims.multicluster.k8s.io", "customresourcedefinitions /clusterproperties.about.k8s.io",
		"customresourcedefinitions /serviceexports.multicluster.x-k8s.io", "customresourcedefinitions /serviceimports.multicluster.x-k8s.io",
		"apiservices /v1.multicluster.k8s.io", "apiservices /v1alpha1.about.k8s.io", "apiservices /v1beta1.about.k8s.io",
		"apiservices /v1alpha1.multicluster.x-k8s.io", "apiservices /v1beta1.multicluster.x-k8s.io",
		"clusterproperties /cluster.clusterset.k8s.io", "clusterproperties /id.k8s.io", "clusterclaims /id.k8s.io",
	}
	var extra []string
	for object := range b.contents(cluster) {
		if _, was := before[object]; !was && !slices.Contains(stays, object) {
			extra = append(extra, object)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return fmt.Errorf("left behind: %s", strings.Join(extra, ", "))
	}
	return nil
}

func checkInstalled(t *testing.T, b *fixture, j joined) {
	agent := get(b, "east", chart.Namespace, "seamark-agent", &appsv1.Deployment{})
	if image := agent.Spec.Template.Spec.Containers[0].Image; image != "example.org/seamark:v1" || *agent.Spec.Replicas != 2 {
		t.Errorf("the agent runs %s with %d replicas", image, *agent.Spec.Replicas)
	}
	if dns := get(b, "east", chart.Namespace, "seamark-dns", &appsv1.Deployment{}); *dns.Spec.Replicas != 3 {
		t.Errorf("the DNS server has %d replicas, want 3", *dns.Spec.Replicas)
	}
	service := get(b, "east", chart.Namespace, "seamark-dns", &corev1.Service{})
	config := get(b, "east", "kube-system", "coredns", &corev1.ConfigMap{})
	want := "forward . " + strings.Join(service.Spec.ClusterIPs, " ") + "\n"
	if !strings.Contains(config.Data["Corefile"], want) || j.DNS.Action != "added" ||
		!strings.Contains(config.Data["Corefile"], "\n0.0.0.0.3.4.2.0.0.0.d.f.ip6.arpa:53 243.in-addr.arpa:53 {\n") {
		t.Errorf("the cluster's DNS (%s) is without %q:\n%s", j.DNS.Action, want, config.Data["Corefile"])
	}
	list := action.NewList(b.helm("east"))
	list.All, list.StateMask = true, action.ListAll
	found, err := list.Run()
	if err != nil || len(found) != 1 || found[0].(*release.Release).Name != chart.ReleaseName {
		t.Errorf("helm lists %d releases (%v), want one named %s", len(found), err, chart.ReleaseName)
	}
}

// checkJoinAgain checks that joining again writes nothing and keeps earlier choices.
func checkJoinAgain(t *testing.T, b *fixture) {
	last := map[string]string{}
	harness.Eventually(t, "the controllers are idle", func() error {
		now := b.contents("east")
		if !maps.Equal(now, last) {
			last = now
			return fmt.Errorf("still changing")
		}
		return nil
	})
	before := b.contents("east")
	again := b.join("east", "east", "")
	if again.Release.Action != chart.Unchanged || again.DNS.Action != "unchanged" {
		t.Errorf("joining again: %+v, DNS %s", again.Release, again.DNS.Action)
	}
	after := b.contents("east")
	for object, version := range after {
		// Joining in one step renews the invitation, which is a new token.
		if before[object] != version && object != "secrets seamark-system/seamark-broker" && object != "secrets seamark-system/seamark-invitation" {
			t.Errorf("joining again wrote %s", object)
		}
	}
}

// checkHelm upgrades the release of join with the packaged chart and without conflicts. Joining
// again keeps the values of the upgrade.
func checkHelm(t *testing.T, b *fixture) {
	path, err := chart.Package(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packaged, err := loader.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The agent writes the key of the beacons into the chart's Secret, where an upgrade leaves it.
	secret := get(b, "east", chart.Namespace, objects.BeaconSecret, &corev1.Secret{})
	secret.Data = map[string][]byte{wire.KeyFile: []byte("a key"), wire.ClusterIDFile: []byte("east")}
	if err := b.client("east").Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	u := action.NewUpgrade(b.helm("east"))
	u.Namespace, u.ReuseValues, u.WaitStrategy = chart.Namespace, true, kube.HookOnlyStrategy
	if _, err := u.Run(chart.ReleaseName, packaged, map[string]any{"logLevel": "debug", "image": map[string]any{"tag": "v2"}}); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	check := func(when string) {
		t.Helper()
		agent := get(b, "east", chart.Namespace, "seamark-agent", &appsv1.Deployment{}).Spec.Template.Spec.Containers[0]
		if agent.Image != "example.org/seamark:v2" || !slices.Contains(agent.Args, "--log-level=debug") {
			t.Errorf("%s the agent is %s with %v", when, agent.Image, agent.Args)
		}
		if kept := get(b, "east", chart.Namespace, objects.BeaconSecret, &corev1.Secret{}); string(kept.Data[wire.KeyFile]) != "a key" {
			t.Errorf("%s the Secret of the beacons holds %d keys", when, len(kept.Data))
		}
	}
	check("after helm upgrade")
	if again := b.join("east", "east", ""); again.Release.Action != chart.Unchanged {
		t.Errorf("joining after helm upgrade: %+v", again.Release)
	}
	check("after joining again")
	u = action.NewUpgrade(b.helm("east"))
	u.Namespace, u.ReuseValues = chart.Namespace, true
	_, err = u.Run(chart.ReleaseName, packaged, map[string]any{"dataPlane": "ebpf"})
	if err == nil || !strings.Contains(err.Error(), "'service', 'nftables', 'none'") {
		t.Errorf("helm upgrade with a wrong value: %v", err)
	}
}

// checkDataPlane checks that the data plane chosen at join decides which workloads run and which
// pod security standard the namespace enforces.
func checkDataPlane(t *testing.T, b *fixture) {
	enforced := func() string {
		return get(b, "east", "", chart.Namespace, &corev1.Namespace{}).Labels["pod-security.kubernetes.io/enforce"]
	}
	forFailovers := func() bool {
		args := get(b, "east", chart.Namespace, "seamark-proxy", &appsv1.DaemonSet{}).Spec.Template.Spec.Containers[0].Args
		return slices.Contains(args, "--failover-only")
	}
	if enforced() != "privileged" || !forFailovers() {
		t.Errorf("by default the namespace enforces %q, and the proxy runs for failovers: %t", enforced(), forFailovers())
	}
	for _, flags := range []string{"--set proxy.failover=false", ""} { // a value stays until it is changed
		b.join("east", "east", flags)
		if enforced() != "restricted" {
			t.Errorf("without the proxy for failovers (%q) the namespace enforces %q", flags, enforced())
		}
		checkAdmitted(t, b, "seamark-agent", "seamark-dns", "seamark-beacon")
	}
	b.join("east", "east", "--dataplane nftables")
	if enforced() != "privileged" {
		t.Errorf("with the proxy the namespace enforces %q", enforced())
	}
	proxy := get(b, "east", chart.Namespace, "seamark-proxy", &appsv1.DaemonSet{})
	if err := b.client("east").Create(t.Context(), podOf("proxy", proxy.Spec.Template), client.DryRunAll); err != nil {
		t.Errorf("a pod of the proxy is rejected: %v", err)
	}
	if b.join("east", "east", ""); forFailovers() {
		t.Error("with the data plane nftables the proxy runs for failovers only")
	}
	b.join("east", "east", "--dataplane service")
	err := b.client("east").Get(t.Context(), client.ObjectKeyFromObject(proxy), proxy)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the proxy still exists (%v)", err)
	}
	if err := b.client("east").Create(t.Context(), podOf("proxy", proxy.Spec.Template), client.DryRunAll); err == nil {
		t.Error("a pod with the nodes' network is admitted without the proxy")
	}
	b.join("east", "east", "--set proxy.failover=true") // leave must remove the proxy too
	if enforced() != "privileged" || !forFailovers() {
		t.Errorf("with the proxy again the namespace enforces %q, and the proxy runs for failovers: %t", enforced(), forFailovers())
	}
}

// checkAdmitted checks that admission accepts pods of the Deployments.
func checkAdmitted(t *testing.T, b *fixture, deployments ...string) {
	t.Helper()
	for _, name := range deployments {
		d := get(b, "east", chart.Namespace, name, &appsv1.Deployment{})
		if err := b.client("east").Create(t.Context(), podOf(name, d.Spec.Template), client.DryRunAll); err != nil {
			t.Errorf("a pod of %s is rejected: %v", name, err)
		}
	}
}

func podOf(name string, template corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: name + "-trial", Labels: template.Labels},
		Spec:       template.Spec,
	}
}
