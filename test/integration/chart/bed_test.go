// Package chart joins and leaves clusters with the command seamark and looks at what that installs, against real API servers with their
// controllers. There is no kubelet: pods are made, but never run.
package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
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
	"github.com/seamark-dev/seamark/internal/cli"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // libraries; what the command says is what is tested
	harness.Main(m)
}

// bed is a user at a terminal with a kubeconfig of one context per cluster.
type bed struct {
	t          testing.TB
	kubeconfig string
	planes     map[string]*controlplane.ControlPlane
}

// newBed starts a cluster for each name, with the controllers that collect garbage, empty namespaces and aggregate roles.
func newBed(t testing.TB, names ...string) *bed {
	t.Helper()
	b := &bed{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), planes: map[string]*controlplane.ControlPlane{}}
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

// client is an admin's client that knows the kinds there are now.
func (b *bed) client(name string) client.Client {
	b.t.Helper()
	c, err := brokeradmin.NewClient(b.planes[name].Config())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// outcome is what a command left on the screen.
type outcome struct {
	code     int
	out, err string
}

// run runs a command line given as words in one string: no argument in these tests has a space.
func (b *bed) run(line string) outcome {
	var out, errOut bytes.Buffer
	args := append(strings.Fields(line), "--kubeconfig", b.kubeconfig)
	code := cli.Run(context.Background(), args, strings.NewReader(""), &out, &errOut)
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

// joined is what join says with -o json, as far as the tests look at it.
type joined struct {
	Release *chart.Release
	DNS     *struct{ Action, Advice string }
}

// join joins a cluster with the broker in its own cluster, or in the hub's.
func (b *bed) join(name, hub, more string) joined {
	b.t.Helper()
	var j joined
	text := b.must("join --broker-context %s --context %s --clusterid %s --no-wait -o json %s", hub, name, name, more).out
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		b.t.Fatalf("%v\n%s", err, text)
	}
	return j
}

// get reads an object.
func get[T client.Object](b *bed, name, namespace, object string, into T) T {
	b.t.Helper()
	if err := b.client(name).Get(b.t.Context(), types.NamespacedName{Namespace: namespace, Name: object}, into); err != nil {
		b.t.Fatalf("read %T %s/%s in %s: %v", into, namespace, object, name, err)
	}
	return into
}

// helm is Helm's own library set up as the command helm does it, without anything of ours.
func (b *bed) helm(name string) *action.Configuration {
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

// passing are kinds whose objects come and go by themselves.
var passing = []string{"events", "leases", "componentstatuses"}

// contents are the resource versions of all objects of all kinds that a cluster has, without what it keeps for itself.
func (b *bed) contents(name string) map[string]string {
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
			if !slices.Contains(resource.Verbs, "list") || (slices.Contains(passing, resource.Name)) {
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

// leases are those of a namespace: contents leaves them out, because those of the controllers change all the time.
func (b *bed) leases(name, namespace string) (names []string) {
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

// namespace makes a namespace.
func (b *bed) namespace(cluster, name string) {
	b.t.Helper()
	b.create(cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (b *bed) create(cluster string, objects ...client.Object) {
	b.t.Helper()
	for _, obj := range objects {
		if err := b.client(cluster).Create(b.t.Context(), obj); err != nil {
			b.t.Fatalf("create %T %s in %s: %v", obj, obj.GetName(), cluster, err)
		}
	}
}
