// Package cli runs the command seamark against real API servers as a user does, and checks its
// output and exit codes.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // drops the libraries' logs: only the output of the command is tested
	harness.Main(m)
}

// environment is what a user has: a kubeconfig with the contexts broker, east and west, and a
// directory.
type environment struct {
	t          testing.TB
	kubeconfig string
	dir        string
	// By context.
	planes  map[string]*controlplane.ControlPlane
	clients map[string]client.Client
}

var contexts = []string{"broker", "east", "west"}

// newEnvironment returns an environment on the shared control planes. When the test ends, no
// cluster is a member of a clusterset.
func newEnvironment(t testing.TB) *environment {
	env := environmentOn(t, harness.Clusters(t, len(contexts)))
	t.Cleanup(func() {
		for _, name := range contexts {
			env.resetMembership(name)
		}
	})
	return env
}

func environmentOn(t testing.TB, cps []*controlplane.ControlPlane) *environment {
	t.Helper()
	env := &environment{t: t, dir: t.TempDir(), planes: map[string]*controlplane.ControlPlane{}, clients: map[string]client.Client{}}
	configs := map[string]*rest.Config{}
	for i, cp := range cps {
		name := contexts[i]
		configs[name] = cp.Config()
		env.planes[name], env.clients[name] = cp, newClient(t, configs[name])
	}
	env.kubeconfig = filepath.Join(env.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*harness.Kubeconfig(configs, "shop"), env.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return env
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := brokeradmin.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (env *environment) run(line string) transcript.Result { return env.runWith("", line) }

func (env *environment) runWith(input, line string) transcript.Result {
	return transcript.Run(context.Background(), env.kubeconfig, input, line)
}

// mustRun runs a command that has to succeed.
func (env *environment) mustRun(format string, args ...any) transcript.Result {
	env.t.Helper()
	line := fmt.Sprintf(format, args...)
	o := env.run(line)
	if o.Code != 0 {
		env.t.Fatalf("seamark %s: exit %d\n%s%s", line, o.Code, o.Stdout, o.Stderr)
	}
	return o
}

// mustRefuse runs a command that has to exit with 1 and to print all the parts on standard error.
func (env *environment) mustRefuse(line string, parts ...string) {
	env.t.Helper()
	o := env.run(line)
	if o.Code != 1 {
		env.t.Errorf("seamark %s: exit %d, want 1\n%s%s", line, o.Code, o.Stdout, o.Stderr)
	}
	for _, part := range parts {
		if !strings.Contains(o.Stderr, part) {
			env.t.Errorf("seamark %s: %q is missing in:\n%s", line, part, o.Stderr)
		}
	}
}

// decode runs a command with JSON output and decodes it.
func decode[T any](env *environment, format string, args ...any) T {
	env.t.Helper()
	var value T
	text := env.mustRun(format+" -o json", args...).Stdout
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		env.t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), err, text)
	}
	return value
}

// path returns the path of a file in the user's directory.
func (env *environment) path(name string) string { return filepath.Join(env.dir, name) }

// invite invites a cluster and returns its invitation.
func (env *environment) invite(namespace, id, more string) objects.Membership {
	env.t.Helper()
	env.mustRun("broker invite %s --context broker -n %s --file %s %s", id, namespace, env.path(id+".yaml"), more)
	return env.invitation(id)
}

func (env *environment) invitation(id string) objects.Membership {
	env.t.Helper()
	text, err := os.ReadFile(env.path(id + ".yaml"))
	if err != nil {
		env.t.Fatal(err)
	}
	var m objects.Membership
	if err := yaml.Unmarshal(text, &m); err != nil {
		env.t.Fatal(err)
	}
	return m
}

// resetMembership removes all traces of a membership from a cluster.
func (env *environment) resetMembership(name string) {
	env.t.Helper()
	ctx, c := context.Background(), env.clients[name]
	env.mustRun("leave --context %s", name)
	for _, property := range []string{aboutv1beta1.PropertyClusterID, aboutv1beta1.PropertyClusterIDOld} {
		harness.Eventually(env.t, "deleting the cluster id", func() error { // its admission policy is removed with a delay
			err := c.Delete(ctx, &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: property}})
			if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				return nil
			}
			return err
		})
	}
	var exports mcsv1beta1.ServiceExportList
	if err := c.List(ctx, &exports); err != nil && !meta.IsNoMatchError(err) {
		env.t.Fatal(err)
	}
	for i := range exports.Items {
		if err := c.Delete(ctx, &exports.Items[i]); err != nil {
			env.t.Fatal(err)
		}
	}
	env.finalizeAgentNamespace(name)
}

// removeBroker removes the clusterset of a broker namespace, so that the test can run again on the
// same API server.
func (env *environment) removeBroker(namespace string) {
	env.t.Helper()
	env.mustRun("broker remove --force --context broker -n %s", namespace)
	env.finalizeNamespace("broker", namespace)
}

// finalizeAgentNamespace removes the finalizer of the agent's namespace if it is being deleted, as
// a controller-manager would.
func (env *environment) finalizeAgentNamespace(name string) {
	env.finalizeNamespace(name, objects.AgentNamespace)
}

func (env *environment) finalizeNamespace(where, name string) {
	env.t.Helper()
	namespace := &corev1.Namespace{}
	err := env.clients[where].Get(context.Background(), types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) || (err == nil && namespace.DeletionTimestamp == nil) {
		return
	}
	if err != nil {
		env.t.Fatal(err)
	}
	namespace.Spec.Finalizers = nil
	if err := env.clients[where].SubResource("finalize").Update(context.Background(), namespace); err != nil {
		env.t.Fatalf("finalize %s: %v", namespace.Name, err)
	}
}

// createNamespace creates a namespace in each of the contexts.
func (env *environment) createNamespace(name string, in ...string) {
	env.t.Helper()
	for _, where := range in {
		env.create(where, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

func (env *environment) create(where string, objects ...client.Object) {
	env.t.Helper()
	for _, obj := range objects {
		if err := env.clients[where].Create(env.t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
			env.t.Fatalf("create %T %s in %s: %v", obj, obj.GetName(), where, err)
		}
	}
}

// clientOf returns a client of the broker with a member's own credential.
func clientOf(t testing.TB, m objects.Membership) client.Client {
	t.Helper()
	return newClient(t, m.Config())
}
