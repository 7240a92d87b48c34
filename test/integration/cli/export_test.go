package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/test/harness"
)

// agentFor runs the agent of a cluster until the function it returns is called, or the test ends.
func (b *bed) agentFor(where string) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			Options:    daemon.Options{Local: b.planes[where].Config(), Log: logr.Discard(), MetricsAddress: "0", ProbeAddress: "0"},
			RenewEvery: time.Second, LeaseDuration: 5 * time.Second,
		})
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				b.t.Errorf("the agent of %s: %v", where, err)
			}
		}
	}
	b.t.Cleanup(stop)
	return stop
}

func webService(namespace string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port}}},
	}
}

// With agents at work: export waits, says what happened, conflicts too; list shows the members; leaving ends it.
func TestExportWithAgents(t *testing.T) {
	b := bedOn(t, harness.Fresh(t, 3, harness.WithControllerManager))
	b.must("broker deploy --context hub")
	b.must("join --no-install --broker-context hub --context east --clusterid east")
	b.must("broker invite west --context hub --allow-namespaces shop --file %s", b.path("west.yaml"))
	b.must("join --no-install %s --context west --dataplane none", b.path("west.yaml"))
	b.namespace("shop", "east", "west")
	b.namespace("private", "west")
	b.create("east", webService("shop", 80))
	b.create("west", webService("shop", 8080), webService("private", 80))
	stopEast := b.agentFor("east")
	b.agentFor("west")

	o := b.must("export service web --context east --wait")
	if want := "Service shop/web is published to the clusterset as web.shop.svc.clusterset.local.\n"; o.out != want {
		t.Errorf("got %q, want %q", o.out, want)
	}
	harness.Eventually(t, "west imports it", func() error {
		return b.clients["west"].Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &mcsv1beta1.ServiceImport{})
	})
	o = b.must("export service web -n shop --context west --wait")
	if !strings.Contains(o.out, "is published") || !strings.Contains(o.out, "PortConflict") || !strings.Contains(o.out, "west") {
		t.Errorf("the conflict is not told:\n%s", o.out)
	}
	b.refused("export service web -n private --context west --wait", "NamespaceNotAllowed", "--allow-namespaces")
	refused := b.run("export service web -n private --context west --wait -o json")
	var value struct {
		Ready      bool               `json:"ready"`
		Conditions []metav1.Condition `json:"conditions"`
	}
	if err := json.Unmarshal([]byte(refused.out), &value); err != nil || refused.code != 1 || value.Ready || len(value.Conditions) == 0 {
		t.Errorf("%v: %+v", err, refused)
	}

	harness.Eventually(t, "the list shows who is alive", func() error {
		members := decode[listing](b, "cluster list --context hub").Clusters
		for _, m := range members {
			if m.Exports != 1 || m.LastHeartbeat == nil || m.AgentVersion == "" || m.DataPlane == "" {
				return fmt.Errorf("%+v", m)
			}
		}
		if len(members) != 2 || members[1].DataPlane != "none" {
			return fmt.Errorf("%+v", members)
		}
		return nil
	})
	b.refused("join --no-install "+b.path("west.yaml")+" --context hub", "used by another cluster")

	b.must("unexport service web --context west")
	harness.Eventually(t, "the conflict is over", func() error {
		if o := b.must("export service web --context east --wait"); strings.Contains(o.out, "onflict") {
			return fmt.Errorf("%s", o.out)
		}
		return nil
	})
	stopEast()
	b.must("leave --context east --broker-context hub")
	harness.Eventually(t, "west drops the import", func() error {
		err := b.clients["west"].Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &mcsv1beta1.ServiceImport{})
		if err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	// And back, while the namespace of before may still be going.
	b.must("join --no-install --broker-context hub --context east")
	b.agentFor("east")
	b.must("export service web --context east --wait")
}

// Every command that prints something prints it as JSON and YAML too.
func TestMachineReadableEverywhere(t *testing.T) {
	b := newBed(t)
	t.Cleanup(func() { b.dismantle("b-json") })
	b.namespace("machine", "east")
	b.create("east", webService("machine", 80))
	b.must("broker deploy --context hub -n b-json")
	b.invite("b-json", "east", "")
	for _, line := range []string{
		"version",
		"broker deploy --context hub -n b-json",
		"broker invite east --context hub -n b-json --renew --force --file " + b.path("east.yaml"),
		"cluster list --context hub -n b-json",
		"join --no-install " + b.path("east.yaml") + " --context east",
		"export service web -n machine --context east",
		"unexport service web -n machine --context east",
		"leave --context east",
		"cluster remove east --context hub -n b-json",
	} {
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) },
		} {
			o := b.run(line + " -o " + format)
			var value map[string]any
			if err := decode([]byte(o.out), &value); err != nil || o.code != 0 || len(value) == 0 {
				t.Errorf("seamark %s -o %s: exit %d, %v\n%s%s", line, format, o.code, err, o.out, o.err)
			}
		}
		if strings.HasPrefix(line, "leave") {
			b.finalize("east")
		}
	}
}
