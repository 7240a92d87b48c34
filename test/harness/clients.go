package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/controlplane"
)

// Scheme returns a new scheme with every type the project uses: those of Kubernetes,
// CustomResourceDefinitions, the MCS API in both versions and Seamark's own.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		mcsv1alpha1.Install, mcsv1beta1.Install, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two packages registered the same kind: a mistake in the code above
		}
	}
	return scheme
}

// Client returns an admin's client without a cache: every read is a request to the API server, so a
// test never sees stale objects. The client goes through the relay and hangs while the control
// plane is cut off. Its first request for a kind runs API discovery without the caller's deadline,
// so make one before CutOff. Client fails the test when the configuration is invalid.
func Client(t testing.TB, cp *controlplane.ControlPlane) client.Client {
	t.Helper()
	return newClient(t, cp.Config())
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: sharedScheme()})
	if err != nil {
		t.Fatalf("create a client: %v", err)
	}
	return c
}

// sharedScheme saves each client the milliseconds of building a scheme. Callers of the package
// cannot change it.
var sharedScheme = sync.OnceValue(Scheme)

// Namespace creates a namespace with a new name, the same on each of the control planes, and
// returns the name. At the end of the test it is deleted; without a controller-manager it then
// stays terminating, with its content. Namespace fails the test when it cannot be created.
func Namespace(t testing.TB, cps ...*controlplane.ControlPlane) string {
	t.Helper()
	name := namespaceName(t.Name())
	for _, cp := range cps {
		// Not through the relay: setup and cleanup must work during an outage that the test causes.
		c := newClient(t, cp.DirectConfig())
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Create(t.Context(), namespace); err != nil {
			t.Fatalf("create namespace %s on %s: %v", name, cp.Name(), err)
		}
		t.Cleanup(func() {
			// The test may have left the control plane stopped or paused; do not wait for it.
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = c.Delete(ctx, namespace)
		})
	}
	return name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// namespaceName returns a new name that begins with the name of the test and is short enough for
// names derived from it.
func namespaceName(test string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(test, "Test")), "-")
	name = strings.Trim(name[:min(len(name), 30)], "-")
	return strings.TrimPrefix(fmt.Sprintf("%s-%06x", name, rand.Uint32N(1<<24)), "-")
}
