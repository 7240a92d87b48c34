package crds

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// submarinerKinds are CRDs of Submariner. One of them exists wherever its operator runs.
var submarinerKinds = []string{"submariners.submariner.io", "brokers.submariner.io"}

// OldestStored is the version of the MCS API in which objects are stored beside Submariner.
const OldestStored = "v1alpha1"

// BesideSubmariner returns the definition for a cluster in which Submariner's operator runs.
//
// At each of its starts the operator replaces the CRDs of the MCS API by its own, which have only
// v1alpha1, and exits if it cannot. The API server refuses to remove a version in which objects are
// stored. With objects stored as v1beta1 the operator would not start any more, and with it the
// upgrades of the tunnels would end. So objects are stored as v1alpha1 there. The operator's
// replacement then succeeds, and the agent restores v1beta1 a moment later; no object is lost,
// because the versions differ in name only.
func (d Definition) BesideSubmariner() Definition {
	if stamp, _ := stampOf(d.CRD); stamp.family != familyMCS {
		return d
	}
	d.CRD, d.storesOldest = d.CRD.DeepCopy(), true
	for i := range d.CRD.Spec.Versions {
		v := &d.CRD.Spec.Versions[i]
		v.Storage = v.Name == OldestStored
	}
	return d
}

// HasSubmariner reports whether Submariner is installed in a cluster, its tunnels alone too.
func HasSubmariner(ctx context.Context, c client.Client) (bool, error) {
	for _, name := range submarinerKinds {
		if crd, err := read(ctx, c, name); err != nil || crd != nil {
			return crd != nil, err
		}
	}
	return false, nil
}

// definitionsFor returns the CRDs of a set for the cluster of c.
func definitionsFor(ctx context.Context, c client.Client, set Set) ([]Definition, error) {
	definitions, err := Definitions(set)
	if err != nil {
		return nil, err
	}
	beside, err := HasSubmariner(ctx, c)
	if err != nil || !beside {
		return definitions, err
	}
	for i := range definitions {
		definitions[i] = definitions[i].BesideSubmariner()
	}
	return definitions, nil
}

// Restore makes the API server serve the kinds of the MCS API again after Submariner's operator has
// replaced their CRDs. It returns the names of those that it changed.
func Restore(ctx context.Context, c client.Client) (restored []string, err error) {
	definitions, err := Definitions(Member)
	if err != nil {
		return nil, err
	}
	for _, d := range definitions {
		if d = d.BesideSubmariner(); !d.storesOldest {
			continue
		}
		decision, err := install(ctx, c, d)
		if err != nil {
			return restored, fmt.Errorf("CustomResourceDefinition %s: %w", d.CRD.Name, err)
		}
		if decision.Action != Keep {
			restored = append(restored, d.CRD.Name)
		}
	}
	return restored, nil
}

// StoresOldest reports whether the definition is one that BesideSubmariner has changed.
func (d Definition) StoresOldest() bool { return d.storesOldest }

// StorageVersion returns the version in which the API server stores objects of a CRD.
func StorageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// storageDelay is how long API servers may take to use a new storage version: each of several
// replicas learns of it by a watch.
const storageDelay = 5 * time.Second

// StoreOldest makes v1alpha1 the only version in which objects of the MCS API are stored, so that
// Submariner's operator can start: it rewrites all objects that may be stored in another version,
// and then removes that version from the CRD's list. It does nothing if the list is short already.
// Install must have run before. It can be repeated after a failure.
func StoreOldest(ctx context.Context, c client.Client) (rewritten int, err error) {
	definitions, err := Definitions(Member)
	if err != nil {
		return 0, err
	}
	for _, d := range definitions {
		if d = d.BesideSubmariner(); !d.storesOldest {
			continue
		}
		n, err := storeOldest(ctx, c, d.CRD.Name)
		rewritten += n
		if err != nil {
			return rewritten, fmt.Errorf("store objects of %s as %s: %w", d.CRD.Name, OldestStored, err)
		}
	}
	return rewritten, nil
}

func storeOldest(ctx context.Context, c client.Client, name string) (rewritten int, err error) {
	crd, err := read(ctx, c, name)
	if err != nil || crd == nil || slices.Equal(crd.Status.StoredVersions, []string{OldestStored}) {
		return 0, err
	}
	if storage := StorageVersion(crd); storage != OldestStored {
		return 0, fmt.Errorf("it stores %s: another tool's version of the CRD is newer than the bundled one", storage)
	}
	select { // objects that an API server writes with the old version after they were rewritten would be lost
	case <-time.After(storageDelay):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: OldestStored, Kind: crd.Spec.Names.ListKind})
	if err := c.List(ctx, list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		// An empty patch changes nothing, but the API server writes an object that is stored in another
		// version.
		if err := c.Patch(ctx, &list.Items[i], client.RawPatch("application/merge-patch+json", []byte("{}"))); client.IgnoreNotFound(err) != nil {
			return rewritten, err
		}
		rewritten++
	}
	if crd, err = read(ctx, c, name); err != nil || crd == nil {
		return rewritten, err
	}
	crd.Status.StoredVersions = []string{OldestStored}
	return rewritten, c.Status().Update(ctx, crd)
}
