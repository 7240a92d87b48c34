package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// checkup is what the tests read of a doctor's report.
type checkup struct {
	Results                         []struct{ Code, Status, Where, Detail, Fix string }
	Passed, Warned, Failed, Skipped int
}

func (c checkup) of(code, where string) (status, detail, fix string) {
	for _, r := range c.Results {
		if r.Code == code && r.Where == where {
			return r.Status, r.Detail, r.Fix
		}
	}
	return "none", "", ""
}

// consult waits until a check has a status, and returns its detail and fix.
func (b *bed) consult(line, code, where, status string) (detail, fix string) {
	b.t.Helper()
	harness.Eventually(b.t, fmt.Sprintf("seamark %s: %s of %s is %s", line, code, where, status), func() error {
		o := b.run("%s -o json", line)
		c := decode[checkup](b.t, o)
		var got string
		if got, detail, fix = c.of(code, where); got != status {
			return fmt.Errorf("it is %s: %s", got, detail)
		}
		if (o.code == 1) != (c.Failed > 0) || o.code > 1 {
			return fmt.Errorf("exit %d with %d failed", o.code, c.Failed)
		}
		return nil
	})
	return detail, fix
}

// A healthy clusterset: nothing fails, and what was not checked says why.
func TestDoctorHealthy(t *testing.T) {
	b := newBed(t)
	for _, code := range []string{"api-server", "permissions", "crds", "membership", "broker", "broker-permissions", "registration", "heartbeat", "data-plane"} {
		b.consult("doctor --contexts east,west", code, "west", "pass")
	}
	for _, code := range []string{"agent", "dns-answer", "remote-pod"} {
		if detail, _ := b.consult("doctor --contexts east,west", code, "east", "skip"); detail == "" {
			t.Errorf("%s: no reason", code)
		}
	}
	b.consult("doctor --broker-context hub", "crds", "broker", "pass")
	o := b.eventually("doctor --contexts east,west", "PASS  heartbeat", "passed,", "0 failed")
	if strings.Contains(b.run("doctor -q").out, "PASS") {
		t.Error("-q shows only what needs attention")
	}
	if strings.Contains(o.out, "\x1b") {
		t.Error("colours in a pipe")
	}
}

// What can be wrong, one after the other in one clusterset: each step leaves it as healthy as the next one needs it.
func TestDoctorFinds(t *testing.T) {
	b := freshBed(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *bed)
	}{
		{"a DNS that does not forward", doctorDNSForward},
		{"a pod that cannot be reached", doctorProbe},
		{"ranges that overlap", doctorRanges},
		{"a revoked permission", doctorBrokerPermissions},
		{"what is dead", doctorFindsWhatIsDead},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			inner := *b
			inner.t = t
			step.run(t, &inner)
		})
		if !ok {
			return
		}
	}
}

// The cluster's DNS does not forward, then forwards elsewhere, then as it should.
func doctorDNSForward(t *testing.T, b *bed) {
	ctx := context.Background()
	service := fleet.NewService("seamark-system", "seamark-dns", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("dns", 53)} })
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{"Corefile": ".:53 {\n    kubernetes cluster.local\n}\n"}}
	b.consult("doctor", "dns-forward", "east", "skip") // no such ConfigMap
	b.east.Create(t, service, config)
	detail, fix := b.consult("doctor", "dns-forward", "east", "fail")
	if !strings.Contains(detail, "does not forward clusterset.local") || !strings.Contains(fix, "forward . "+service.Spec.ClusterIP) {
		t.Errorf("%s: %s", detail, fix)
	}
	b.expect(1, "doctor", "FAIL  dns-forward", "pods cannot resolve names of the clusterset", "error: 1 check failed")
	shop := b.namespace(b.east)
	b.serve(b.east, shop, "cart")
	if err := b.explained(shop, "cart", "east", "dns-not-forwarded").lacks(1, `hop "dns" in east`, "forward . "+service.Spec.ClusterIP); err != nil {
		t.Error(err)
	}
	elsewhere, err := corefile.Add(config.Data["Corefile"], corefile.Forward{Servers: []string{"10.9.9.9"}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		config.Data["Corefile"] = text
		if err := b.east.Client.Update(ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	set(elsewhere)
	b.consult("doctor", "dns-forward", "east", "fail")
	right, err := corefile.Add(config.Data["Corefile"], corefile.Forward{Servers: []string{service.Spec.ClusterIP}})
	if err != nil {
		t.Fatal(err)
	}
	set(right)
	b.consult("doctor", "dns-forward", "east", "pass")
	// And a live query.
	ns := b.namespace(b.east)
	b.serve(b.east, ns, "web")
	address := startDNS(t, b.east)
	b.consult("doctor --dns "+address, "dns-answer", "east", "pass")
	b.consult("doctor --dns 127.0.0.1:1", "dns-answer", "east", "fail")
	if detail, _ := b.consult("doctor --dns "+startDNS(t, &fleet.Member{CP: b.fleet.Broker}), "dns-answer", "east", "fail"); !strings.Contains(detail, "NXDOMAIN") {
		t.Errorf("a DNS that does not forward: %s", detail)
	}
}

// A dead agent, a removed member, a revoked credential and a broken workload.
func doctorFindsWhatIsDead(t *testing.T, b *bed) {
	b.consult("doctor", "heartbeat", "east", "pass")
	b.east.Create(t, deployment("seamark-agent", 2), deployment("seamark-dns", 2))
	if detail, fix := b.consult("doctor", "agent", "east", "fail"); !strings.Contains(detail, "none of 2 pods") || !strings.Contains(fix, "describe pods") {
		t.Errorf("%s: %s", detail, fix)
	}
	b.consult("doctor", "dns-server", "east", "fail")
	ns := b.namespace(b.east)
	b.serve(b.east, ns, "web")
	if err := b.explained(ns, "web", "east", "dns-silent").lacks(1, "none of 2 pods of seamark-dns is ready"); err != nil {
		t.Error(err)
	}

	b.east.Stop()
	if _, fix := b.consult("doctor", "heartbeat", "east", "fail"); !strings.Contains(fix, "logs deployment/seamark-agent") {
		t.Errorf("fix: %s", fix)
	}
	if detail, _ := b.consult("doctor --context west", "other-members", "broker", "warn"); !strings.Contains(detail, "east") {
		t.Errorf("%s", detail)
	}
	b.expect(0, "cluster remove east --context hub")
	b.consult("doctor --broker-context hub", "registration", "east", "fail")
	if detail, fix := b.consult("doctor", "broker", "east", "fail"); !strings.Contains(detail, "does not accept cluster east") || !strings.Contains(fix, "--renew") {
		t.Errorf("%s: %s", detail, fix)
	}
	if err := b.west.CP.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	b.consult("doctor --contexts east,west --broker-context hub", "api-server", "west", "fail")
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

// Ranges that overlap, as the members tell them.
func doctorRanges(t *testing.T, b *bed) {
	for _, m := range b.fleet.Members {
		m.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.ID}, Spec: corev1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}}})
	}
	// The agents tell about themselves at their own pace: once a minute. Restarted ones do at once.
	b.fleet.Stop()
	if err := b.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	detail, _ := b.consult("doctor", "address-ranges", "east and west", "fail")
	if !strings.Contains(detail, "10.8.0.0/24") {
		t.Errorf("%s", detail)
	}
	b.consult("doctor", "clusterset-ip-ranges", "broker", "pass")
}

// The probe is a pod that is gone afterwards. Without kubelets, the test plays the part of one.
func doctorProbe(t *testing.T, b *bed) {
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "seamark-system", Name: "default"}}
	b.west.Create(t, account)
	for phase, status := range map[corev1.PodPhase]string{corev1.PodSucceeded: "pass", corev1.PodFailed: "fail"} {
		done := make(chan checkup, 1)
		go func() {
			done <- decode[checkup](t, b.run("doctor --context west --probe-image example.org/busybox -o json"))
		}()
		pod := &corev1.Pod{}
		harness.Eventually(t, "a pod to probe with", func() error {
			var pods corev1.PodList
			if err := b.west.Client.List(context.Background(), &pods, client.InNamespace("seamark-system")); err != nil {
				return err
			}
			if len(pods.Items) == 0 {
				return fmt.Errorf("none yet")
			}
			pod = &pods.Items[0]
			pod.Status.Phase = phase
			return b.west.Client.Status().Update(context.Background(), pod)
		})
		c := <-done
		if got, detail, _ := c.of("remote-pod", "west"); got != status || !strings.Contains(detail, "10.1.0.1 port 8080") {
			t.Errorf("%s: %s %s", phase, got, detail)
		}
		var left corev1.PodList
		if err := b.west.Client.List(context.Background(), &left, client.InNamespace("seamark-system")); err != nil || len(left.Items) > 0 {
			t.Errorf("%d pods are left, %v", len(left.Items), err)
		}
	}
}

// A revoked permission of the member on the broker.
func doctorBrokerPermissions(t *testing.T, b *bed) {
	ctx := context.Background()
	b.consult("doctor", "broker-permissions", "east", "pass")
	own := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: objects.MemberAccount("east") + ":own"}}
	if err := errors.Join(b.fleet.Admin.Get(ctx, client.ObjectKeyFromObject(own), own), b.fleet.Admin.Delete(ctx, own)); err != nil {
		t.Fatal(err)
	}
	detail, fix := b.consult("doctor", "broker-permissions", "east", "fail")
	if !strings.Contains(detail, "update leases east") || !strings.Contains(fix, "seamark broker invite east --renew") {
		t.Errorf("%s: %s", detail, fix)
	}
	own.ResourceVersion, own.UID = "", ""
	if err := b.fleet.Admin.Create(ctx, own); err != nil {
		t.Fatal(err)
	}
	b.consult("doctor", "broker-permissions", "east", "pass")
}
