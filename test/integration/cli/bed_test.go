// Package cli drives the command seamark as a user does, against real API servers: arguments in, output and exit code out.
package cli

import (
	"bytes"
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
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // libraries; what the command says is what is tested
	harness.Main(m)
}

// bed is a user at a terminal: a kubeconfig with the contexts hub, east and west, and a folder of their own.
type bed struct {
	t          testing.TB
	kubeconfig string
	dir        string
	// planes and clients by context.
	planes  map[string]*controlplane.ControlPlane
	clients map[string]client.Client
}

var contexts = []string{"hub", "east", "west"}

// newBed gives the test the shared control planes, with no cluster a member of anything at its end.
func newBed(t testing.TB) *bed {
	b := bedOn(t, harness.Clusters(t, len(contexts)))
	t.Cleanup(func() {
		for _, name := range contexts {
			b.forget(name)
		}
	})
	return b
}

func bedOn(t testing.TB, cps []*controlplane.ControlPlane) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), planes: map[string]*controlplane.ControlPlane{}, clients: map[string]client.Client{}}
	config := clientcmdapi.NewConfig()
	for i, cp := range cps {
		name, rc := contexts[i], cp.Config()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "shop"}
		b.planes[name], b.clients[name] = cp, newClient(t, rc)
	}
	b.kubeconfig = filepath.Join(b.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, b.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return b
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := brokeradmin.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome is what a command left on the screen.
type outcome struct {
	code     int
	out, err string
}

// run runs a command line given as words in one string: no argument in these tests has a space.
func (b *bed) run(line string) outcome { return b.runWith("", line) }

func (b *bed) runWith(input, line string) outcome {
	var out, errOut bytes.Buffer
	args := append(strings.Fields(line), "--kubeconfig", b.kubeconfig)
	code := cli.Run(context.Background(), args, strings.NewReader(input), &out, &errOut)
	return outcome{code, out.String(), errOut.String()}
}

// must runs a command that has to succeed.
func (b *bed) must(format string, args ...any) outcome {
	b.t.Helper()
	line := fmt.Sprintf(format, args...)
	o := b.run(line)
	if o.code != 0 {
		b.t.Fatalf("seamark %s: exit %d\n%s%s", line, o.code, o.out, o.err)
	}
	return o
}

// refused runs a command that has to fail with code 1 and say all the parts on standard error.
func (b *bed) refused(line string, parts ...string) {
	b.t.Helper()
	o := b.run(line)
	if o.code != 1 {
		b.t.Errorf("seamark %s: exit %d, want 1\n%s%s", line, o.code, o.out, o.err)
	}
	for _, part := range parts {
		if !strings.Contains(o.err, part) {
			b.t.Errorf("seamark %s says:\n%swant: %q", line, o.err, part)
		}
	}
}

// decode runs a command and reads what it printed, as JSON.
func decode[T any](b *bed, format string, args ...any) T {
	b.t.Helper()
	var value T
	text := b.must(format+" -o json", args...).out
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		b.t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), err, text)
	}
	return value
}

// path is a file in the user's folder.
func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

// invite invites a cluster and returns its invitation.
func (b *bed) invite(namespace, id, more string) objects.Membership {
	b.t.Helper()
	b.must("broker invite %s --context hub -n %s --file %s %s", id, namespace, b.path(id+".yaml"), more)
	return b.invitation(id)
}

func (b *bed) invitation(id string) objects.Membership {
	b.t.Helper()
	text, err := os.ReadFile(b.path(id + ".yaml"))
	if err != nil {
		b.t.Fatal(err)
	}
	var m objects.Membership
	if err := yaml.Unmarshal(text, &m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// forget makes a cluster as if it had never joined, whatever a test left there.
func (b *bed) forget(name string) {
	b.t.Helper()
	ctx, c := context.Background(), b.clients[name]
	b.must("leave --context %s", name)
	for _, property := range []string{aboutv1beta1.PropertyClusterID, aboutv1beta1.PropertyClusterIDOld} {
		harness.Eventually(b.t, "forgetting the id", func() error { // the policy that guards it lags a moment
			err := c.Delete(ctx, &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: property}})
			if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				return nil
			}
			return err
		})
	}
	var exports mcsv1beta1.ServiceExportList
	if err := c.List(ctx, &exports); err != nil && !meta.IsNoMatchError(err) {
		b.t.Fatal(err)
	}
	for i := range exports.Items {
		if err := c.Delete(ctx, &exports.Items[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	b.finalize(name)
}

// dismantle takes away the clusterset of a broker namespace, so that the test can be run again on the same API server.
func (b *bed) dismantle(namespace string) {
	b.t.Helper()
	b.must("broker remove --force --context hub -n %s", namespace)
	b.finalizeNamespace("hub", namespace)
}

// finalize does what a controller-manager would: it lets a deleted, empty namespace go.
func (b *bed) finalize(name string) { b.finalizeNamespace(name, objects.AgentNamespace) }

func (b *bed) finalizeNamespace(name, what string) {
	b.t.Helper()
	namespace := &corev1.Namespace{}
	err := b.clients[name].Get(context.Background(), types.NamespacedName{Name: what}, namespace)
	if apierrors.IsNotFound(err) || (err == nil && namespace.DeletionTimestamp == nil) {
		return
	}
	if err != nil {
		b.t.Fatal(err)
	}
	namespace.Spec.Finalizers = nil
	if err := b.clients[name].SubResource("finalize").Update(context.Background(), namespace); err != nil {
		b.t.Fatalf("finalize %s: %v", namespace.Name, err)
	}
}

// namespace makes a namespace in each of the contexts.
func (b *bed) namespace(name string, in ...string) {
	b.t.Helper()
	for _, where := range in {
		b.create(where, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

func (b *bed) create(where string, objects ...client.Object) {
	b.t.Helper()
	for _, obj := range objects {
		if err := b.clients[where].Create(b.t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
			b.t.Fatalf("create %T %s in %s: %v", obj, obj.GetName(), where, err)
		}
	}
}

// as is a client of the broker with a member's own credential.
func as(t testing.TB, m objects.Membership) client.Client {
	t.Helper()
	return newClient(t, m.Config())
}
