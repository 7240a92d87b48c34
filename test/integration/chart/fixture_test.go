// Package chart joins and leaves clusters with the command seamark and checks what that installs,
// on real API servers with their controllers. There is no kubelet: pods are created, but never run.
package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"helm.sh/helm/v4/pkg/action"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // of libraries; only the output of the command is tested
	harness.Main(m)
}

// fixture is a set of clusters with a kubeconfig that has one context for each.
type fixture struct {
	t          testing.TB
	kubeconfig string
	planes     map[string]*controlplane.ControlPlane
}

// newFixture starts a cluster for each name. Its controllers collect garbage, delete namespaces and
// aggregate roles.
func newFixture(t testing.TB, names ...string) *fixture {
	t.Helper()
	b := &fixture{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), planes: map[string]*controlplane.ControlPlane{}}
	config := clientcmdapi.NewConfig()
	for i, cp := range harness.Fresh(t, len(names), harness.WithControllerManager) {
		name, rc := names[i], cp.Config()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "shop"}
		b.planes[name] = cp
	}
	if err := clientcmd.WriteToFile(*config, b.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return b
}

// client returns an admin's client with the kinds that are installed now.
func (b *fixture) client(name string) client.Client {
	b.t.Helper()
	c, err := brokeradmin.NewClient(b.planes[name].Config())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *fixture) run(line string) transcript.Result {
	return transcript.Run(context.Background(), b.kubeconfig, "", line)
}

// must runs a command that has to succeed.
func (b *fixture) must(format string, args ...any) transcript.Result {
	b.t.Helper()
	line := fmt.Sprintf(format, args...)
	o := b.run(line)
	if o.Code != 0 {
		b.t.Fatalf("seamark %s: exit %d\n%s%s", line, o.Code, o.Stdout, o.Stderr)
	}
	return o
}

// joined is the part of the output of join -o json that the tests check.
type joined struct {
	Release *chart.Release
	DNS     *struct{ Action, Advice string }
}

// join joins a cluster to the broker in the given cluster, which may be the same.
func (b *fixture) join(name, broker, more string) joined {
	b.t.Helper()
	var j joined
	text := b.must("join --broker-context %s --context %s --clusterid %s --no-wait -o json %s", broker, name, name, more).Stdout
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		b.t.Fatalf("%v\n%s", err, text)
	}
	return j
}

// get returns an object of a cluster.
func get[T client.Object](b *fixture, name, namespace, object string, into T) T {
	b.t.Helper()
	if err := b.client(name).Get(b.t.Context(), types.NamespacedName{Namespace: namespace, Name: object}, into); err != nil {
		b.t.Fatalf("read %T %s/%s in %s: %v", into, namespace, object, name, err)
	}
	return into
}

// helm returns a configuration of Helm's library as the command helm uses it, without code of
// Seamark.
func (b *fixture) helm(name string) *action.Configuration {
	b.t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	namespace := chart.Namespace
	flags.KubeConfig, flags.Context, flags.Namespace = &b.kubeconfig, &name, &namespace
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.NewTextHandler(io.Discard, nil)))
	if err := cfg.Init(flags, namespace, ""); err != nil {
		b.t.Fatal(err)
	}
	return cfg
}

// volatileKinds are resources whose objects change without a client of the test.
var volatileKinds = []string{"events", "leases", "componentstatuses"}

// contents returns the resource versions of all objects of a cluster, except those of
// volatileKinds.
func (b *fixture) contents(name string) map[string]string {
	b.t.Helper()
	config := b.planes[name].Config()
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := metadata.NewForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		b.t.Fatal(err)
	}
	found := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(volatileKinds, resource.Name) {
				continue
			}
			objects, err := c.Resource(gv.WithResource(resource.Name)).List(b.t.Context(), metav1.ListOptions{})
			if err != nil {
				b.t.Fatalf("list %s: %v", resource.Name, err)
			}
			for _, o := range objects.Items {
				found[fmt.Sprintf("%s %s/%s", resource.Name, o.Namespace, o.Name)] = o.ResourceVersion
			}
		}
	}
	return found
}

// leases returns the names of the leases in a namespace. contents leaves leases out, because
// controllers renew theirs all the time.
func (b *fixture) leases(name, namespace string) (names []string) {
	b.t.Helper()
	c, err := metadata.NewForConfig(b.planes[name].Config())
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := c.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).
		Namespace(namespace).List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, lease := range list.Items {
		names = append(names, lease.Name)
	}
	return names
}

// namespace creates a namespace.
func (b *fixture) namespace(cluster, name string) {
	b.t.Helper()
	b.create(cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (b *fixture) create(cluster string, objects ...client.Object) {
	b.t.Helper()
	for _, obj := range objects {
		if err := b.client(cluster).Create(b.t.Context(), obj); err != nil {
			b.t.Fatalf("create %T %s in %s: %v", obj, obj.GetName(), cluster, err)
		}
	}
}
