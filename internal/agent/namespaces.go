package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/objects"
)

// releaseInterval is how often namespaces that went are looked at: whether this cluster has
// withdrawn everything that it published there.
const releaseInterval = 5 * time.Second

// namespacesOf returns the namespaces whose services an agent reads from the broker. One that
// creates namespaces reads all: every service concerns it.
func namespacesOf(o Options) *subscription.Namespaces {
	if o.CreateNamespaces {
		return subscription.Every()
	}
	return subscription.NewNamespaces()
}

// watchNamespaces follows the namespaces of this cluster.
func (a *agent) watchNamespaces(ctx context.Context) error {
	synced, err := member.Watch(ctx, a.manager.GetCache(), &corev1.Namespace{}, func(ns *corev1.Namespace, deleted bool) {
		if deleted {
			a.namespaces.Delete(ns.Name)
			return
		}
		a.namespaces.Add(ns.Name)
	})
	a.namespacesSynced = synced
	return err
}

// followNamespaces reads in which namespaces this cluster has published something, so that it can
// withdraw it although they may be gone. Then the objects of all its namespaces are listed.
func (a *agent) followNamespaces(ctx context.Context) error {
	if a.namespaces.AreAll() || !toolscache.WaitForCacheSync(ctx.Done(), a.namespacesSynced) {
		return nil
	}
	for attempts := 0; ; attempts++ {
		published, err := a.publishedNamespaces(ctx)
		if err == nil {
			for _, namespace := range published {
				a.namespaces.AddPublished(namespace)
			}
			a.namespaces.SetKnown()
			break
		}
		if attempts == 0 {
			a.Log.Info("cannot read what this cluster has published; retrying", "error", err.Error())
		}
		if !sleep(ctx, member.RetryDelay(attempts, a.clusters.Len())) {
			return nil
		}
	}
	for sleep(ctx, releaseInterval) {
		for _, namespace := range a.namespaces.Gone() {
			if a.connected() && !a.hasPublished(ctx, namespace) {
				a.namespaces.Release(namespace)
			}
		}
	}
	return nil
}

// publishedNamespaces returns the namespaces of what this cluster has on the broker.
func (a *agent) publishedNamespaces(ctx context.Context) (namespaces []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: a.membership.ClusterID}
	writtenBy := client.MatchingLabels{v1alpha1.LabelWrittenBy: a.membership.ClusterID}
	for kind, labels := range map[schema.GroupVersionKind]client.MatchingLabels{
		v1alpha1.GroupVersion.WithKind("ExportRecordList"):           own,
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"): own,
		mcsv1beta1.SchemeGroupVersion.WithKind("ServiceImportList"):  writtenBy,
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := a.brokerDirect.List(ctx, list, client.InNamespace(a.membership.Namespace), labels); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			if service, ok := objects.ServiceOf(&list.Items[i]); ok {
				namespaces = append(namespaces, service.Namespace)
			}
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}

// hasPublished reports whether this cluster has something in a namespace on the broker.
func (a *agent) hasPublished(ctx context.Context, namespace string) bool {
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: a.membership.ClusterID, v1alpha1.LabelServiceNamespace: namespace}
	broker := a.broker.GetClient()
	records, err := keysIn(ctx, broker, objects.ServiceOf, &v1alpha1.ExportRecordList{}, own, index.RecordsOf(namespace))
	slicesLeft, err2 := keysIn(ctx, broker, objects.ServiceOf, &discoveryv1.EndpointSliceList{}, own)
	aggregates := &mcsv1beta1.ServiceImportList{}
	err3 := broker.List(ctx, aggregates, client.MatchingLabels{v1alpha1.LabelServiceNamespace: namespace}, client.UnsafeDisableDeepCopy)
	if err != nil || err2 != nil || err3 != nil || len(records)+len(slicesLeft) > 0 {
		return true
	}
	return slices.ContainsFunc(aggregates.Items, func(si mcsv1beta1.ServiceImport) bool {
		isOrphan := len(si.Status.Clusters) == 0 && si.Labels[v1alpha1.LabelWrittenBy] == a.membership.ClusterID
		return isOrphan || objects.ListsCluster(&si, a.membership.ClusterID)
	})
}
