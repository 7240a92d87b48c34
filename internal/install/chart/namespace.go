package chart

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// labelEnforce is the pod security standard that the API server enforces in a namespace.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// Pod security standards.
const (
	restricted = "restricted"
	privileged = "privileged"
)

// standardFor returns the strictest pod security standard that admits the pods of the release.
func standardFor(proxy bool) string {
	if proxy {
		return privileged
	}
	return restricted
}

// RunsProxy reports whether a release with these values runs seamark-proxy on the nodes: as the
// data plane, or beside that of the cluster for failovers.
func RunsProxy(values map[string]any) (bool, error) {
	c, err := Load()
	if err != nil {
		return false, err
	}
	all := loader.MergeMaps(c.Values, values)
	proxy, _ := all["proxy"].(map[string]any)
	failover, _ := proxy["failover"].(bool)
	of := objects.DataPlaneOf(planeOf(all))
	return of.RunsProxy || of.DerivesService && failover, nil
}

// namespaceFor returns the namespace of the release, as users apply it.
func namespaceFor(proxy bool) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{
			objects.LabelPartOf: objects.PartOfSeamark, labelEnforce: standardFor(proxy),
		}},
	}
}

// EnsurePodSecurity sets the strictest pod security standard that admits the pods of the release:
// restricted, or privileged with the proxy, which programs the nodes' network. It reports whether
// it changed the namespace. A namespace that the user created is not changed; EnsurePodSecurity
// fails if its standard does not admit the proxy.
func EnsurePodSecurity(ctx context.Context, c client.Client, proxy bool) (bool, error) {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: Namespace}, namespace); err != nil {
		return false, fmt.Errorf("read namespace %s: %w", Namespace, err)
	}
	want := standardFor(proxy)
	have := namespace.Labels[labelEnforce]
	if namespace.Labels[objects.LabelManagedBy] != objects.ManagedBySeamark {
		if proxy && have != "" && have != privileged {
			return false, fmt.Errorf("namespace %s enforces the pod security standard %s, and seamark-proxy needs pods that may "+
				"program the nodes' network: kubectl label namespace %s --overwrite %s=%s", Namespace, have, Namespace, labelEnforce, privileged)
		}
		return false, nil
	}
	if have == want {
		return false, nil
	}
	namespace.Labels[labelEnforce] = want
	if err := c.Update(ctx, namespace); err != nil {
		return false, fmt.Errorf("label namespace %s: %w", Namespace, err)
	}
	return true, nil
}
