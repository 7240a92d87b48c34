package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// RemoveBrokerResult is what RemoveBroker did.
type RemoveBrokerResult struct {
	Namespace  string `json:"namespace"`
	ClusterSet string `json:"clusterSet,omitempty"`
	// Found is false when there was no broker.
	Found bool `json:"found"`
	// Members were removed with it.
	Members []string `json:"members,omitempty"`
	// Last reports that no other broker is on this API server, so that CRDs and policies were deleted
	// too.
	Last bool `json:"last"`
	// FairnessKept is why API priority and fairness objects were not deleted.
	FairnessKept string `json:"fairnessKept,omitempty"`
	Steps        []Step `json:"steps"`
}

// RemoveBroker undoes Deploy. While the clusterset has members it refuses, unless force is set;
// then it removes them and their services disappear everywhere. Policies and Seamark's own CRDs are
// shared by all brokers of an API server and are deleted with the last of them. The CRD of
// ServiceImport stays, because other implementations of the MCS API use it. If RemoveBroker is
// interrupted, running it again completes it.
func RemoveBroker(ctx context.Context, c client.Client, namespace string, force bool) (RemoveBrokerResult, error) {
	r := RemoveBrokerResult{Namespace: namespace}
	set, err := findClusterSet(ctx, c, namespace)
	if err != nil && !errors.Is(err, errNoClusterSet) {
		return r, err
	}
	members, err := listMetadata(ctx, c, &v1alpha1.Cluster{}, client.InNamespace(namespace))
	if err != nil {
		return r, err
	}
	for i := range members {
		r.Members = append(r.Members, members[i].Name)
	}
	slices.Sort(r.Members)
	if set != nil {
		r.Found, r.ClusterSet = true, set.Name
	}
	if len(r.Members) > 0 && !force {
		return r, fmt.Errorf("clusterset %s still has members (%s), whose services would vanish everywhere: "+
			"let each leave first (seamark leave), or say --force", r.ClusterSet, strings.Join(r.Members, ", "))
	}
	for _, part := range []func(context.Context, client.Client) error{r.removeMembers, r.deleteObjects, r.deleteFairness, r.deleteShared} {
		if err := part(ctx, c); err != nil {
			return r, fmt.Errorf("remove the broker in namespace %s (run it again to complete it): %w", namespace, err)
		}
	}
	return r, deleteNamespace(ctx, c, namespace)
}

func (r *RemoveBrokerResult) removeMembers(ctx context.Context, c client.Client) error {
	for _, id := range r.Members {
		if r.ClusterSet == "" {
			break // an earlier RemoveBroker got this far; the members have no access any more
		}
		if _, err := RemoveMember(ctx, c, r.Namespace, id); err != nil {
			return err
		}
		r.Steps = append(r.Steps, Step{Object: "Cluster " + id, Action: Deleted})
	}
	return deleteTombstones(ctx, c, r.Namespace, func(string) bool { return true })
}

// deleteObjects deletes the remaining objects of the broker. The ClusterSet goes last, because a
// broker is recognized by it.
func (r *RemoveBrokerResult) deleteObjects(ctx context.Context, c client.Client) error {
	toDelete, err := policies.Grants(r.Namespace)
	if err != nil {
		return err
	}
	toDelete = append(toDelete, sharedRole(r.Namespace))
	for _, kind := range []client.Object{
		&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}, &coordinationv1.Lease{},
		&v1alpha1.Cluster{}, &v1alpha1.ClusterSet{},
	} {
		list, err := listMetadata(ctx, c, kind, client.InNamespace(r.Namespace))
		if err != nil {
			return err
		}
		for i := range list {
			if isBrokerObject(kind, &list[i]) {
				toDelete = append(toDelete, &list[i])
			}
		}
	}
	return r.delete(ctx, c, toDelete)
}

func (r *RemoveBrokerResult) deleteFairness(ctx context.Context, c client.Client) error {
	steps, kept, err := deleteFairness(ctx, c, r.Namespace)
	r.Steps, r.FairnessKept = append(r.Steps, steps...), kept
	return err
}

// isBrokerObject reports whether an object in the broker's namespace belongs to the broker. Slices,
// ServiceImports and Leases may also belong to others.
func isBrokerObject(kind client.Object, obj metav1.Object) bool {
	_, ofService := objects.ServiceOf(obj)
	switch kind.(type) {
	case *discoveryv1.EndpointSlice, *mcsv1beta1.ServiceImport:
		return ofService
	case *coordinationv1.Lease:
		return obj.GetLabels()[objects.LabelManagedBy] == objects.ManagedBySeamark
	}
	return true
}

// deleteShared deletes the policies and CRDs that all brokers of the API server need, if this was
// the last broker.
func (r *RemoveBrokerResult) deleteShared(ctx context.Context, c client.Client) error {
	for _, kind := range []client.Object{&v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}, &v1alpha1.ExportRecord{}} {
		others, err := listMetadata(ctx, c, kind)
		if err != nil || len(others) > 0 {
			return err
		}
	}
	r.Last = true
	rules, err := policies.Load(policies.Broker)
	if err != nil {
		return err
	}
	slices.Reverse(rules) // bindings before their policies
	if err := r.delete(ctx, c, rules); err != nil {
		return err
	}
	definitions, err := crds.Definitions(crds.Broker)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if definition.CRD.Spec.Group != v1alpha1.GroupVersion.Group {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, types.NamespacedName{Name: definition.CRD.Name}, crd); absent(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read CustomResourceDefinition %s: %w", definition.CRD.Name, err)
		}
		if err := r.delete(ctx, c, []client.Object{crd}); err != nil {
			return err
		}
		if err := waitForDeletion(ctx, c, crd); err != nil {
			return err
		}
	}
	return nil
}

// waitForDeletion waits until a CRD is gone. Otherwise a broker that is deployed right afterwards
// would find it being deleted.
func waitForDeletion(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	err := wait.PollUntilContextTimeout(ctx, deletionPoll, deletionTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return absent(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for the deletion of CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return nil
}

func (r *RemoveBrokerResult) delete(ctx context.Context, c client.Client, toDelete []client.Object) error {
	steps, err := deleteAll(ctx, c, toDelete)
	r.Steps = append(r.Steps, steps...)
	return err
}
