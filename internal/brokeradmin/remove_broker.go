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

// Dismantled is what Dismantle did.
type RemoveBrokerResult struct {
	Namespace  string `json:"namespace"`
	ClusterSet string `json:"clusterSet,omitempty"`
	// Found is false when there was no broker.
	Found bool `json:"found"`
	// Members were removed with it.
	Members []string `json:"members,omitempty"`
	// Last tells that no other broker is on this API server, so that kinds and policies went too.
	Last  bool   `json:"last"`
	Steps []Step `json:"steps"`
}

// Dismantle undoes Deploy. It refuses while the clusterset has members unless force is set, and then removes them: their services vanish
// everywhere. What other brokers on the same API server share, policies and our own kinds, goes with the last of them; ServiceImport,
// which is everybody's, stays. An interrupted Dismantle is completed by doing it again.
func RemoveBroker(ctx context.Context, c client.Client, namespace string, force bool) (RemoveBrokerResult, error) {
	d := RemoveBrokerResult{Namespace: namespace}
	set, err := findClusterSet(ctx, c, namespace)
	if err != nil && !errors.Is(err, errNoClusterSet) {
		return d, err
	}
	members, err := listMetadata(ctx, c, &v1alpha1.Cluster{}, client.InNamespace(namespace))
	if err != nil {
		return d, err
	}
	for i := range members {
		d.Members = append(d.Members, members[i].Name)
	}
	slices.Sort(d.Members)
	if set != nil {
		d.Found, d.ClusterSet = true, set.Name
	}
	if len(d.Members) > 0 && !force {
		return d, fmt.Errorf("clusterset %s still has members (%s), whose services would vanish everywhere: let each leave first (seamark leave), "+
			"or say --force", d.ClusterSet, strings.Join(d.Members, ", "))
	}
	for _, part := range []func(context.Context, client.Client) error{d.members, d.objects, d.shared} {
		if err := part(ctx, c); err != nil {
			return d, fmt.Errorf("remove the broker in namespace %s (run it again to complete it): %w", namespace, err)
		}
	}
	return d, removeNamespace(ctx, c, namespace)
}

func (d *RemoveBrokerResult) members(ctx context.Context, c client.Client) error {
	for _, id := range d.Members {
		if d.ClusterSet == "" {
			break // an earlier Dismantle got that far; what is left has no rights
		}
		if _, err := RemoveMember(ctx, c, d.Namespace, id); err != nil {
			return err
		}
		d.Steps = append(d.Steps, Step{Object: "Cluster " + id, Action: Deleted})
	}
	return nil
}

// objects deletes what is left in the namespace. The ClusterSet goes last, since by it the broker is known.
func (d *RemoveBrokerResult) objects(ctx context.Context, c client.Client) error {
	doomed := []client.Object{sharedRole(d.Namespace)}
	for _, kind := range []client.Object{
		&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}, &coordinationv1.Lease{}, &v1alpha1.Cluster{}, &v1alpha1.ClusterSet{},
	} {
		list, err := listMetadata(ctx, c, kind, client.InNamespace(d.Namespace))
		if err != nil {
			return err
		}
		for i := range list {
			if d.isBrokerObject(kind, &list[i]) {
				doomed = append(doomed, &list[i])
			}
		}
	}
	return d.deleteAll(ctx, c, doomed)
}

// ours tells a broker's objects from others of a kind that everybody has.
func (d *RemoveBrokerResult) isBrokerObject(kind client.Object, obj metav1.Object) bool {
	_, ofService := objects.ServiceOf(obj)
	switch kind.(type) {
	case *discoveryv1.EndpointSlice, *mcsv1beta1.ServiceImport:
		return ofService
	case *coordinationv1.Lease:
		return obj.GetLabels()[objects.LabelManagedBy] == objects.ManagedBySeamark
	}
	return true
}

// shared deletes what all brokers on the API server need, when this was the last.
func (d *RemoveBrokerResult) shared(ctx context.Context, c client.Client) error {
	for _, kind := range []client.Object{&v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}, &v1alpha1.ExportRecord{}} {
		others, err := listMetadata(ctx, c, kind)
		if err != nil || len(others) > 0 {
			return err
		}
	}
	d.Last = true
	rules, err := policies.Load(policies.Broker)
	if err != nil {
		return err
	}
	slices.Reverse(rules) // bindings before what they bind
	if err := d.deleteAll(ctx, c, rules); err != nil {
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
		if err := d.deleteAll(ctx, c, []client.Object{crd}); err != nil {
			return err
		}
		if err := waitForDeletion(ctx, c, crd); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until the API server has finished deleting a definition: a broker deployed meanwhile would find it still there.
func waitForDeletion(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	err := wait.PollUntilContextTimeout(ctx, deletionPoll, deletionTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return absent(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for the end of CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return nil
}

func (d *RemoveBrokerResult) deleteAll(ctx context.Context, c client.Client, doomed []client.Object) error {
	for _, obj := range doomed {
		steps, err := deleteObject(ctx, c, obj)
		if err != nil {
			return err
		}
		d.Steps = append(d.Steps, steps...)
	}
	return nil
}
