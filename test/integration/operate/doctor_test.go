package operate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// diagnosis is what the tests read of the output of doctor.
type diagnosis struct {
	Results                         []struct{ Code, Status, Where, Detail, Fix string }
	Passed, Warned, Failed, Skipped int
}

func (c diagnosis) of(code, where string) (status, detail, fix string) {
	for _, r := range c.Results {
		if r.Code == code && r.Where == where {
			return r.Status, r.Detail, r.Fix
		}
	}
	return "none", "", ""
}

// diagnosed waits until a check has a status, and returns its detail and fix.
func (term *terminal) diagnosed(line, code, where, status string) (detail, fix string) {
	term.t.Helper()
	harness.Eventually(term.t, fmt.Sprintf("seamark %s: %s of %s is %s", line, code, where, status), func() error {
		o := term.run("%s -o json", line)
		c := decode[diagnosis](term.t, o)
		var got string
		if got, detail, fix = c.of(code, where); got != status {
			return fmt.Errorf("it is %s: %s", got, detail)
		}
		if (o.Code == 1) != (c.Failed > 0) || o.Code > 1 {
			return fmt.Errorf("exit %d with %d failed", o.Code, c.Failed)
		}
		return nil
	})
	return detail, fix
}

// A healthy clusterset: nothing fails, and skipped checks have a reason.
func TestDoctorHealthy(t *testing.T) {
	term := sharedClusterset(t)
	for _, code := range []string{
		"api-server", "permissions", "crds", "membership", "broker", "broker-permissions", "registration", "heartbeat", "data-plane",
	} {
		term.diagnosed("doctor --contexts east,west", code, "west", "pass")
	}
	for _, code := range []string{"agent", "dns-answer", "remote-pod"} {
		if detail, _ := term.diagnosed("doctor --contexts east,west", code, "east", "skip"); detail == "" {
			t.Errorf("%s: no reason", code)
		}
	}
	term.diagnosed("doctor --broker-context broker", "crds", "broker", "pass")
	term.diagnosed("doctor --broker-context broker", "broker-fairness", "broker", "pass")
	o := term.eventually("doctor --contexts east,west", "PASS  heartbeat", "passed,", "0 failed")
	if strings.Contains(term.run("doctor -q").Stdout, "PASS") {
		t.Error("-q shows only what needs attention")
	}
	if strings.Contains(o.Stdout, "\x1b") {
		t.Error("colours in a pipe")
	}
}

// What can be wrong, in one clusterset: each step restores what the next one needs.
func TestDoctorFinds(t *testing.T) {
	term := freshClusterset(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *terminal)
	}{
		{"withdrawals that are held", doctorHeld},
		{"a DNS that does not forward", doctorDNSForward},
		{"a pod that cannot be reached", doctorProbe},
		{"beacons that are not ready", doctorBeacons},
		{"ranges that overlap", doctorRanges},
		{"a share of the API server that is missing", doctorFairness},
		{"what is not granted", doctorGrants},
		{"a limit that is reached", explainLimit},
		{"a system namespace", explainReservedNamespace},
		{"a revoked permission", doctorBrokerPermissions},
		{"what has stopped", doctorFindsWhatHasStopped},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			inner := *term
			inner.t = t
			step.run(t, &inner)
		})
		if !ok {
			return
		}
	}
}

// The exports of east are gone when its agent starts, and then the broker's records of them.
func doctorHeld(t *testing.T, term *terminal) {
	ns := term.namespace(term.east, term.west)
	names := []string{"web", "db", "api", "cache"}
	for _, name := range names {
		term.serve(term.east, ns, name)
		term.healthy(ns, name, "east,west")
	}
	restart := func(m *fleet.Member, meanwhile func() error) {
		t.Helper()
		m.Stop()
		if err := errors.Join(meanwhile(), m.Start()); err != nil {
			t.Fatal(err)
		}
	}
	restart(term.east, func() error {
		return term.east.Client.DeleteAllOf(t.Context(), &mcsv1beta1.ServiceExport{}, client.InNamespace(ns))
	})
	harness.Eventually(t, "doctor names all services", func() error {
		detail, fix := term.diagnosed("doctor", "withdrawal-held", "east", "warn")
		if !strings.Contains(detail, "it still publishes 4 services for 10m: ") || !strings.Contains(fix, "apply its ServiceExports") {
			return fmt.Errorf("%s: %s", detail, fix)
		}
		return nil
	})
	term.finds(0, "withdrawal-held", ns, "web", "east,west", "WARN withdrawal-held in east", "delete exportrecords -l")
	for _, name := range names {
		term.east.Export(t, ns, name)
		term.healthy(ns, name, "east,west")
	}

	term.east.Stop()
	restart(term.west, func() error {
		return term.fleet.Admin.DeleteAllOf(t.Context(), &v1alpha1.ExportRecord{}, client.InNamespace(objects.DefaultNamespace),
			client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns})
	})
	term.diagnosed("doctor --context west", "withdrawal-held", "west", "warn")
	term.finds(1, "withdrawal-held", ns, "web", "west", "WARN withdrawal-held in west", "lost most records of cluster east")
	if err := term.east.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		term.healthy(ns, name, "east,west")
		term.east.Unexport(t, ns, name)
	}
}

// A record of a cluster that is no member is ignored, and shown.
func doctorGrants(t *testing.T, term *terminal) {
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.east.AwaitExported(t, ns, "web")
	records := &v1alpha1.ExportRecordList{}
	inNamespace := client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}
	if err := term.fleet.Admin.List(t.Context(), records, inNamespace); err != nil || len(records.Items) != 1 {
		t.Fatalf("%d records (%v)", len(records.Items), err)
	}
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	foreign := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: records.Items[0].Namespace, Name: objects.RecordName(service, "ghost"), Labels: objects.Labels(service, "ghost"),
	}, Spec: records.Items[0].Spec}
	foreign.Spec.ClusterID = "ghost"
	if err := term.fleet.Admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	detail, fix := term.diagnosed("doctor", "grants", "ghost", "warn")
	if !strings.Contains(detail, "importers ignore 1 service from ghost") || !strings.Contains(fix, "seamark cluster remove ghost") {
		t.Errorf("%s: %s", detail, fix)
	}
	term.finds(1, "not-a-member", ns, "web", "east,west", "importers ignore it")
	if err := term.fleet.Admin.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	term.diagnosed("doctor", "grants", "broker", "pass")
	term.healthy(ns, "web", "east,west")
}

// East may not publish one more service, until the admin raises its limit.
func explainLimit(t *testing.T, term *terminal) {
	ns := term.namespace(term.east, term.west)
	records := &v1alpha1.ExportRecordList{}
	if err := term.fleet.Admin.List(t.Context(), records, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "east"}); err != nil {
		t.Fatal(err)
	}
	limit := func(services int32) {
		cluster := &v1alpha1.Cluster{}
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: "east"}
		harness.Eventually(t, "limit east", func() error {
			if err := term.fleet.Admin.Get(t.Context(), key, cluster); err != nil {
				return err
			}
			cluster.Spec.Limits.Services = services
			return term.fleet.Admin.Update(t.Context(), cluster)
		})
	}
	limit(int32(len(records.Items)))
	term.serve(term.east, ns, "web")
	term.finds(1, "limit-exceeded", ns, "web", "east,west", "edit clusters.seamark.dev east")
	limit(5000)
	term.healthy(ns, "web", "east,west")
}

// The cluster's DNS does not forward, then forwards to another server, then to seamark-dns.
func doctorDNSForward(t *testing.T, term *terminal) {
	ctx := context.Background()
	service := fleet.NewService("seamark-system", "seamark-dns", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{fleet.Port("dns", 53)}
	})
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data:       map[string]string{"Corefile": ".:53 {\n    kubernetes cluster.local\n}\n"},
	}
	term.diagnosed("doctor", "dns-forward", "east", "skip") // no such ConfigMap
	term.east.Create(t, service, config)
	detail, fix := term.diagnosed("doctor", "dns-forward", "east", "fail")
	if !strings.Contains(detail, "does not forward clusterset.local") || !strings.Contains(fix, "forward . "+service.Spec.ClusterIP) {
		t.Errorf("%s: %s", detail, fix)
	}
	term.expect(1, "doctor", "FAIL  dns-forward", "pods cannot resolve names of the clusterset", "error: 1 check failed")
	shop := term.namespace(term.east)
	term.serve(term.east, shop, "cart")
	term.finds(1, "dns-not-forwarded", shop, "cart", "east", `hop "dns" in east`, "forward . "+service.Spec.ClusterIP)
	elsewhere, err := corefile.Add(config.Data["Corefile"], corefile.Forward{Servers: []string{"10.9.9.9"}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		config.Data["Corefile"] = text
		if err := term.east.Client.Update(ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	set(elsewhere)
	term.diagnosed("doctor", "dns-forward", "east", "fail")
	right, err := corefile.Add(config.Data["Corefile"], corefile.Forward{Servers: []string{service.Spec.ClusterIP}})
	if err != nil {
		t.Fatal(err)
	}
	set(right)
	term.diagnosed("doctor", "dns-forward", "east", "warn") // without the reverse names of clusterset IPs
	if right, err = corefile.Add(config.Data["Corefile"], corefile.Forward{Servers: []string{service.Spec.ClusterIP},
		Reverse: []string{"243.in-addr.arpa", "0.0.0.0.3.4.2.0.0.0.d.f.ip6.arpa"}}); err != nil {
		t.Fatal(err)
	}
	set(right)
	term.diagnosed("doctor", "dns-forward", "east", "pass")
	// A query to a running server.
	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	address := startDNS(t, term.east)
	term.diagnosed("doctor --dns "+address, "dns-answer", "east", "pass")
	term.diagnosed("doctor --dns 127.0.0.1:1", "dns-answer", "east", "fail")
	other := startDNS(t, &fleet.Member{CP: term.fleet.Broker})
	if detail, _ := term.diagnosed("doctor --dns "+other, "dns-answer", "east", "fail"); !strings.Contains(detail, "NXDOMAIN") {
		t.Errorf("a DNS that does not forward: %s", detail)
	}
}

// A stopped agent, a removed member, a revoked credential and a broken workload.
func doctorFindsWhatHasStopped(t *testing.T, term *terminal) {
	term.diagnosed("doctor", "heartbeat", "east", "pass")
	term.east.Create(t, deployment("seamark-agent", 2), deployment("seamark-dns", 2))
	detail, fix := term.diagnosed("doctor", "agent", "east", "fail")
	if !strings.Contains(detail, "none of 2 pods") || !strings.Contains(fix, "describe pods") {
		t.Errorf("%s: %s", detail, fix)
	}
	term.diagnosed("doctor", "dns-server", "east", "fail")
	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	term.finds(1, "dns-silent", ns, "web", "east", "none of 2 pods of seamark-dns is ready")

	term.east.Stop()
	if _, fix := term.diagnosed("doctor", "heartbeat", "east", "fail"); !strings.Contains(fix, "logs deployment/seamark-agent") {
		t.Errorf("fix: %s", fix)
	}
	if detail, _ := term.diagnosed("doctor --context west", "other-members", "broker", "warn"); !strings.Contains(detail, "east") {
		t.Errorf("%s", detail)
	}
	doctorPublishedFacts(t, term)
	term.expect(0, "cluster remove east --context broker")
	term.diagnosed("doctor --broker-context broker", "registration", "east", "fail")
	for _, code := range []string{"broker", "membership"} {
		detail, fix = term.diagnosed("doctor", code, "east", "fail")
		if !strings.Contains(detail, "removed") || strings.Contains(fix, "--renew") || !strings.Contains(fix, "seamark broker invite east") {
			t.Errorf("%s: %s", detail, fix)
		}
	}
	// Without a tombstone, or with an expired token, there are two possible causes.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: objects.MemberAccount("east")}}
	if err := term.fleet.Admin.Delete(context.Background(), account); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "doctor names both causes", func() error { // API servers cache for ten seconds that a token is valid
		_, fix := term.diagnosed("doctor", "broker", "east", "fail")
		if !strings.Contains(fix, "expired (seamark broker invite east --renew) or the cluster was removed (the same without --renew)") {
			return errors.New(fix)
		}
		return nil
	})
	const crd = "serviceexports.multicluster.x-k8s.io"
	term.east.Delete(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd}})
	if detail, _ := term.diagnosed("doctor", "crds", "east", "fail"); !strings.Contains(detail, crd+" is not installed") {
		t.Errorf("%s", detail)
	}
	if err := term.west.CP.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	term.diagnosed("doctor --contexts east,west --broker-context broker", "api-server", "west", "fail")
}

// doctorPublishedFacts changes what the stopped member east has published about itself.
func doctorPublishedFacts(t *testing.T, term *terminal) {
	t.Helper()
	ctx := context.Background()
	east := &v1alpha1.Cluster{}
	if err := term.fleet.Admin.Get(ctx, types.NamespacedName{Namespace: objects.DefaultNamespace, Name: "east"}, east); err != nil {
		t.Fatal(err)
	}
	east.Status.AgentVersion, east.Status.PodCIDRs = "v0.0.1", []v1alpha1.CIDR{"243.200.0.0/16"}
	if err := term.fleet.Admin.Status().Update(ctx, east); err != nil {
		t.Fatal(err)
	}
	if detail, _ := term.diagnosed("doctor --context west", "agent-versions", "broker", "warn"); !strings.Contains(detail, "v0.0.1 in east") {
		t.Errorf("%s", detail)
	}
	detail, _ := term.diagnosed("doctor --context west", "clusterset-ip-ranges", "east", "fail")
	if !strings.Contains(detail, "243.200.0.0/16") {
		t.Errorf("%s", detail)
	}
}

// A system namespace that one member may export, but another may not import.
func explainReservedNamespace(t *testing.T, term *terminal) {
	ns := "kube-" + term.namespace()
	for _, m := range term.fleet.Members {
		m.Namespace(t, ns)
	}
	allow := func(namespaces ...string) {
		t.Helper()
		east := &v1alpha1.Cluster{}
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: "east"}
		harness.Eventually(t, "the admin changes the allowed namespaces of east", func() error {
			if err := term.fleet.Admin.Get(context.Background(), key, east); err != nil {
				return err
			}
			east.Spec.AllowedNamespaces = namespaces
			return term.fleet.Admin.Update(context.Background(), east)
		})
	}
	allow(ns)
	term.serve(term.east, ns, "web")
	term.finds(0, "namespace-reserved", ns, "web", "east,west", `hop "import" in west`, "--allow-namespaces "+ns)
	allow()
	term.finds(1, "namespace-not-allowed", ns, "web", "east")
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": strings.TrimPrefix(name, "seamark-")}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "seamark-system", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.org/none"}}},
			},
		},
	}
}

// Pod ranges that overlap, as the members publish them.
func doctorRanges(t *testing.T, term *terminal) {
	for _, m := range term.fleet.Members {
		m.Create(t, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.ID},
			Spec:       corev1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}},
		})
	}
	// Agents publish their status once a minute, and when they start.
	term.fleet.Stop()
	if err := term.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	detail, _ := term.diagnosed("doctor", "address-ranges", "east and west", "fail")
	if !strings.Contains(detail, "10.8.0.0/24") {
		t.Errorf("%s", detail)
	}
	term.diagnosed("doctor", "clusterset-ip-ranges", "broker", "pass")
}

// An admin deletes what protects members from a noisy one. Deploying the broker again restores it.
func doctorFairness(t *testing.T, term *terminal) {
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "seamark-leases." + objects.DefaultNamespace}}
	if err := term.fleet.Admin.Delete(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	detail, fix := term.diagnosed("doctor --broker-context broker", "broker-fairness", "broker", "warn")
	if !strings.Contains(detail, schema.Name) || !strings.Contains(fix, "broker deploy") {
		t.Errorf("%s: %s", detail, fix)
	}
	if o := term.run("broker deploy --context broker"); o.Code != 0 {
		t.Fatalf("exit %d: %s", o.Code, o.Stderr)
	}
	term.diagnosed("doctor --broker-context broker", "broker-fairness", "broker", "pass")
}

// The probe is a pod that is deleted afterwards. There are no kubelets, so the test sets its phase.
func doctorProbe(t *testing.T, term *terminal) {
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.healthy(ns, "web", "east,west")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "seamark-system", Name: "default"}}
	term.west.Create(t, account)
	for phase, status := range map[corev1.PodPhase]string{corev1.PodSucceeded: "pass", corev1.PodFailed: "fail"} {
		done := make(chan diagnosis, 1)
		go func() {
			done <- decode[diagnosis](t, term.run("doctor --context west --probe-image example.org/busybox -o json"))
		}()
		pod := &corev1.Pod{}
		harness.Eventually(t, "a pod to probe with", func() error {
			var pods corev1.PodList
			if err := term.west.Client.List(context.Background(), &pods, client.InNamespace("seamark-system")); err != nil {
				return err
			}
			if len(pods.Items) == 0 {
				return fmt.Errorf("none yet")
			}
			pod = &pods.Items[0]
			pod.Status.Phase = phase
			return term.west.Client.Status().Update(context.Background(), pod)
		})
		c := <-done
		if got, detail, _ := c.of("remote-pod", "west"); got != status || !strings.Contains(detail, "10.1.0.1 port 8080") {
			t.Errorf("%s: %s %s", phase, got, detail)
		}
		var left corev1.PodList
		if err := term.west.Client.List(context.Background(), &left, client.InNamespace("seamark-system")); err != nil || len(left.Items) > 0 {
			t.Errorf("%d pods are left, %v", len(left.Items), err)
		}
	}
}

// Beacons that are installed and not ready, and then ready but not published.
func doctorBeacons(t *testing.T, term *terminal) {
	beacon := deployment("seamark-beacon", 3)
	term.east.Create(t, beacon)
	defer term.east.Delete(t, beacon)
	if detail, _ := term.diagnosed("doctor", "beacons", "east", "warn"); !strings.Contains(detail, "none of 3 pods is ready") {
		t.Errorf("%s", detail)
	}
	beacon.Status.Replicas, beacon.Status.ReadyReplicas = 3, 3
	if err := term.east.Client.Status().Update(context.Background(), beacon); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "beacons that are not published", func() error {
		if detail, _ := term.diagnosed("doctor", "beacons", "east", "warn"); !strings.Contains(detail, "the broker has none of their addresses") {
			return errors.New(detail)
		}
		return nil
	})
}

// Revoked permissions of the member on the broker: the broker then refuses its exports.
func doctorBrokerPermissions(t *testing.T, term *terminal) {
	ctx := context.Background()
	term.diagnosed("doctor", "broker-permissions", "east", "pass")
	// revoke takes the rules away that concern a resource.
	revoke := func(resource string) (restore func()) {
		t.Helper()
		admin := term.fleet.Admin
		key := client.ObjectKey{Namespace: objects.DefaultNamespace, Name: objects.MemberAccount("east")}
		change := func(rules func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
			t.Helper()
			role := &rbacv1.Role{}
			if err := admin.Get(ctx, key, role); err != nil {
				t.Fatal(err)
			}
			role.Rules = rules(role.Rules)
			if err := admin.Update(ctx, role); err != nil {
				t.Fatal(err)
			}
		}
		var before []rbacv1.PolicyRule
		change(func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
			before = slices.Clone(rules)
			return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, resource) && !slices.Contains(r.Verbs, "watch")
			})
		})
		return func() { t.Helper(); change(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before }) }
	}
	restoreLease := revoke("leases")
	detail, fix := term.diagnosed("doctor", "broker-permissions", "east", "fail")
	if !strings.Contains(detail, "update leases east") || !strings.Contains(fix, "seamark broker invite east --renew") {
		t.Errorf("%s: %s", detail, fix)
	}
	restoreLease()
	term.diagnosed("doctor", "broker-permissions", "east", "pass")

	restoreRecords := revoke("exportrecords")
	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	term.finds(1, "broker-refused", ns, "web", "east --broker-context broker",
		`hop "broker" in east`, "forbidden", "seamark broker invite east --renew")
	restoreRecords()
	term.healthy(ns, "web", "east")
}
