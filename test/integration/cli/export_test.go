package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/test/harness"
)

// startAgent runs the agent of a cluster until the returned function is called or the test ends.
func (env *environment) startAgent(where string) (stop func()) {
	env.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			Options: daemon.Options{
				Local: env.planes[where].Config(), Log: logr.Discard(), MetricsAddress: "0", ProbeAddress: "0",
			},
			RenewEvery: time.Second, LeaseDuration: 5 * time.Second,
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			env.t.Errorf("the agent of %s: %v", where, err)
		}
	})
	env.t.Cleanup(stop)
	return stop
}

func webService(namespace string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port}}},
	}
}

// With running agents, export waits and reports the outcome including conflicts, list shows the
// members, and leave withdraws the exports.
func TestExportWithAgents(t *testing.T) {
	env := environmentOn(t, harness.Fresh(t, 3, harness.WithControllerManager))
	env.mustRun("broker deploy --context broker")
	env.mustRun("join --no-install --broker-context broker --context east --clusterid east")
	env.mustRun("broker invite west --context broker --allow-namespaces shop --file %s", env.path("west.yaml"))
	env.mustRun("join --no-install %s --context west --dataplane none", env.path("west.yaml"))
	env.createNamespace("shop", "east", "west")
	env.createNamespace("private", "west")
	env.create("east", webService("shop", 80))
	env.create("west", webService("shop", 8080), webService("private", 80))
	stopEast := env.startAgent("east")
	env.startAgent("west")

	o := env.mustRun("export service web --context east --wait")
	if want := "Service shop/web is published to the clusterset as web.shop.svc.clusterset.local.\n"; o.Stdout != want {
		t.Errorf("got %q, want %q", o.Stdout, want)
	}
	harness.Eventually(t, "west imports it", func() error {
		return env.clients["west"].Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &mcsv1beta1.ServiceImport{})
	})
	o = env.mustRun("export service web -n shop --context west --wait")
	if !strings.Contains(o.Stdout, "is published") || !strings.Contains(o.Stdout, "PortConflict") || !strings.Contains(o.Stdout, "west") {
		t.Errorf("the conflict is not reported:\n%s", o.Stdout)
	}
	env.mustRefuse("export service web -n private --context west --wait", "NamespaceNotAllowed", "--allow-namespaces")
	refused := env.run("export service web -n private --context west --wait -o json")
	var value struct {
		Ready      bool               `json:"ready"`
		Conditions []metav1.Condition `json:"conditions"`
	}
	if err := json.Unmarshal([]byte(refused.Stdout), &value); err != nil || refused.Code != 1 || value.Ready || len(value.Conditions) == 0 {
		t.Errorf("%v: %+v", err, refused)
	}

	harness.Eventually(t, "the list shows the state of both members", func() error {
		members := decode[memberList](env, "cluster list --context broker").Clusters
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
	env.mustRefuse("join --no-install "+env.path("west.yaml")+" --context broker", "used by another cluster")

	env.mustRun("unexport service web --context west")
	harness.Eventually(t, "the conflict is cleared", func() error {
		if o := env.mustRun("export service web --context east --wait"); strings.Contains(o.Stdout, "onflict") {
			return fmt.Errorf("%s", o.Stdout)
		}
		return nil
	})
	stopEast()
	env.mustRun("leave --context east --broker-context broker")
	harness.Eventually(t, "west deletes its import", func() error {
		err := env.clients["west"].Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &mcsv1beta1.ServiceImport{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceImport still exists (%w)", err)
		}
		return nil
	})
	// East joins again, possibly while the agent's old namespace is still being deleted.
	env.mustRun("join --no-install --broker-context broker --context east")
	env.startAgent("east")
	env.mustRun("export service web --context east --wait")
}

// The commands that change a clusterset print JSON and YAML, too. Package operate tests those that
// only read.
func TestJSONAndYAMLOutput(t *testing.T) {
	env := newEnvironment(t)
	t.Cleanup(func() { env.removeBroker("b-json") })
	env.createNamespace("machine", "east")
	env.create("east", webService("machine", 80))
	env.mustRun("broker deploy --context broker -n b-json")
	env.invite("b-json", "east", "")
	for _, line := range []string{
		"version",
		"broker deploy --context broker -n b-json",
		"broker invite east --context broker -n b-json --renew --force --file " + env.path("east.yaml"),
		"cluster list --context broker -n b-json",
		"join --no-install " + env.path("east.yaml") + " --context east",
		"export service web -n machine --context east",
		"unexport service web -n machine --context east",
		"leave --context east",
		"cluster remove east --context broker -n b-json",
		"broker remove --context broker -n b-json",
	} {
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) },
		} {
			o := env.run(line + " -o " + format)
			text := []byte(o.Stdout)
			if format == "yaml" && strings.HasPrefix(line, "broker invite") { // the file is the manifest of a Secret
				var err error
				if text, err = os.ReadFile(env.path("east.yaml")); err != nil {
					t.Fatal(err)
				}
			}
			var value map[string]any
			if err := decode(text, &value); err != nil || o.Code != 0 || len(value) == 0 {
				t.Errorf("seamark %s -o %s: exit %d, %v\n%s%s", line, format, o.Code, err, o.Stdout, o.Stderr)
			}
		}
		if strings.HasPrefix(line, "leave") {
			env.finalizeAgentNamespace("east")
		}
	}
}
