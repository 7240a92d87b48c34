package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// annotationPreviousDNS on the ClusterProperty is the ConfigMap, as namespace/name, to which
// Submariner's operator wrote its forward block before the switch.
const annotationPreviousDNS = "seamark.dev/previous-lighthouse-dns"

// Act carries out an action that changes the cluster. f are the facts from which it was decided.
func Act(ctx context.Context, c client.Client, f Facts, a Action) error {
	switch a.Kind {
	case InstallKinds:
		_, err := crds.Install(ctx, c, crds.Member)
		return err
	case StoreOldest:
		_, err := crds.StoreOldest(ctx, c)
		return err
	case SetGuard:
		return setGuard(ctx, c, f, a.Guard)
	case SetPhase:
		return changeProperty(ctx, c, func(p *aboutv1beta1.ClusterProperty) { p.Spec.Value = string(a.Phase) })
	case RemovePhase:
		if err := deleteUnusedDNS(ctx, c, f); err != nil {
			return err
		}
		p := &aboutv1beta1.ClusterProperty{}
		p.Name = v1alpha1.PropertyMigration
		return client.IgnoreNotFound(c.Delete(ctx, p))
	case RedirectDNS:
		return redirectDNS(ctx, c, f)
	case UnredirectDNS:
		return setCustomDNS(ctx, c, f.Submariner.Namespace, f.PreviousDNS)
	case ReplaceDNS:
		return replaceDNS(ctx, c)
	case RestoreDNS:
		return restoreDNS(ctx, c, f)
	case DisableAgent, EnableAgent:
		return changeSubmariner(ctx, c, f.Submariner.Namespace, func(cr *unstructured.Unstructured) error {
			return unstructured.SetNestedField(cr.Object, a.Kind == EnableAgent, "spec", "serviceDiscoveryEnabled")
		})
	case EndDiscovery:
		return endDiscovery(ctx, c, f.Submariner.Namespace)
	case DeleteLeftover:
		return deleteLeftovers(ctx, c, f)
	case Wait, Stop, Done:
	}
	return fmt.Errorf("action %s changes nothing", a.Kind)
}

// changeProperty creates or updates the ClusterProperty that holds the phase.
func changeProperty(ctx context.Context, c client.Client, change func(*aboutv1beta1.ClusterProperty)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		p := &aboutv1beta1.ClusterProperty{}
		err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.PropertyMigration}, p)
		if apierrors.IsNotFound(err) {
			p.Name = v1alpha1.PropertyMigration
			p.Labels = map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
			change(p)
			return c.Create(ctx, p)
		}
		if err != nil {
			return err
		}
		change(p)
		return c.Update(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("write ClusterProperty %s: %w", v1alpha1.PropertyMigration, err)
	}
	return nil
}

// redirectDNS makes the operator write its forward block to a ConfigMap that no DNS server reads.
// It would otherwise add the block again at any time, and CoreDNS does not load a Corefile with
// two blocks of one zone. The previous setting is remembered first.
func redirectDNS(ctx context.Context, c client.Client, f Facts) error {
	if previous := f.Submariner.CustomDNS; previous.Name != "" {
		err := changeProperty(ctx, c, func(p *aboutv1beta1.ClusterProperty) {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[annotationPreviousDNS] = previous.Namespace + "/" + previous.Name
		})
		if err != nil {
			return err
		}
	}
	// It is written again when the operator has taken the setting over.
	if err := deleteUnusedDNS(ctx, c, f); err != nil {
		return err
	}
	return setCustomDNS(ctx, c, f.Submariner.Namespace, unusedDNS(f))
}

func deleteUnusedDNS(ctx context.Context, c client.Client, f Facts) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.Submariner.Namespace, Name: UnusedDNSConfigMap}}
	if err := c.Delete(ctx, config); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", config.Namespace, config.Name, err)
	}
	return nil
}

func configMapRef(text string) ConfigMapRef {
	namespace, name, _ := strings.Cut(text, "/")
	return ConfigMapRef{namespace, name}
}

func setCustomDNS(ctx context.Context, c client.Client, namespace string, to ConfigMapRef) error {
	return changeSubmariner(ctx, c, namespace, func(cr *unstructured.Unstructured) error {
		if to.Name == "" {
			unstructured.RemoveNestedField(cr.Object, "spec", "coreDNSCustomConfig")
			return nil
		}
		value := map[string]any{"configMapName": to.Name}
		if to.Namespace != "" {
			value["namespace"] = to.Namespace
		}
		return unstructured.SetNestedMap(cr.Object, value, "spec", "coreDNSCustomConfig")
	})
}

func changeSubmariner(ctx context.Context, c client.Client, namespace string, change func(*unstructured.Unstructured) error) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cr := &unstructured.Unstructured{}
		cr.SetGroupVersionKind(submarinerKind)
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: submarinerName}, cr); err != nil {
			return err
		}
		if err := change(cr); err != nil {
			return err
		}
		return c.Update(ctx, cr)
	})
	if err != nil {
		return fmt.Errorf("change Submariner %s/%s: %w", namespace, submarinerName, err)
	}
	return nil
}

// endDiscovery deletes the ServiceDiscovery in place of an operator that does not run. Without its
// finalizer nothing runs the uninstall job; the garbage collector deletes what it owns.
func endDiscovery(ctx context.Context, c client.Client, namespace string) error {
	sd := &unstructured.Unstructured{}
	sd.SetGroupVersionKind(discoveryKind)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: discoveryName}, sd); err != nil {
			return err
		}
		if len(sd.GetFinalizers()) > 0 {
			sd.SetFinalizers(nil)
			if err := c.Update(ctx, sd); err != nil {
				return err
			}
		}
		return c.Delete(ctx, sd)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ServiceDiscovery %s/%s: %w", namespace, discoveryName, err)
	}
	return nil
}

// deleteLeftovers deletes what Lighthouse's agent wrote in this cluster for others to read: its
// EndpointSlices, and what this cluster contributed to the services. What is in the namespace of a
// broker stays: other clusters may read it.
func deleteLeftovers(ctx context.Context, c client.Client, f Facts) error {
	return errors.Join(deleteContributions(ctx, c, f.Submariner.Namespace), deleteSlices(ctx, c))
}

// deleteSlices deletes Lighthouse's EndpointSlices in the namespaces of services.
func deleteSlices(ctx context.Context, c client.Client) error {
	list := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, list, client.MatchingLabels{discoveryv1.LabelManagedBy: v1alpha1.ManagedByLighthouse}); err != nil {
		return fmt.Errorf("list Lighthouse's EndpointSlices: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if s := &list.Items[i]; s.Labels[labelSourceNamespace] == s.Namespace { // not a broker's
			errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, s)))
		}
	}
	return errors.Join(errs...)
}

// deleteContributions deletes the ServiceImports in the namespace of Submariner's operator.
func deleteContributions(ctx context.Context, c client.Client, namespace string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(importKind.GroupVersion().WithKind(importKind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace), client.HasLabels{mcsv1beta1.LabelServiceName, labelSourceNamespace}); err != nil {
		return fmt.Errorf("list what this cluster contributed to Lighthouse's services: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, &list.Items[i])))
	}
	return errors.Join(errs...)
}
