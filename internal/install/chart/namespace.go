package chart

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// labelEnforce is the pod security standard that the API server holds pods of a namespace to.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// Pod security standards.
const (
	restricted = "restricted"
	privileged = "privileged"
)

// Admit makes the namespace of the release one in which its pods are admitted, and nothing looser: restricted, or privileged where the
// proxy has to program the nodes' network. It tells whether it changed anything. A namespace that somebody else made is left alone; it
// fails when that one would refuse the proxy.
func Admit(ctx context.Context, c client.Client, proxy bool) (bool, error) {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: Namespace}, namespace); err != nil {
		return false, fmt.Errorf("read namespace %s: %w", Namespace, err)
	}
	want := restricted
	if proxy {
		want = privileged
	}
	have := namespace.Labels[labelEnforce]
	if namespace.Labels[objects.LabelManagedBy] != objects.ManagedBySeamark {
		if proxy && have != "" && have != privileged {
			return false, fmt.Errorf("namespace %s enforces the pod security standard %s, and the data plane nftables needs pods that may "+
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
