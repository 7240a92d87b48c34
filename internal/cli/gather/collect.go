package gather

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"path"
	goruntime "runtime"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// all adds everything. What cannot be read is recorded as a problem.
func (w *writer) all(ctx context.Context, clusters []*survey.Cluster, broker *survey.Broker, since time.Duration) {
	for _, c := range clusters {
		if c.Membership != nil {
			w.hide(c.Membership.Token)
			w.hide(base64.StdEncoding.EncodeToString([]byte(c.Membership.Token)))
			w.hide(strings.TrimSpace(string(c.Membership.CAData)))
		}
		if c.Config != nil {
			w.hide(c.Config.BearerToken)
			w.hide(c.Config.Password)
		}
	}
	w.reports(ctx, clusters, broker)
	for _, c := range clusters {
		if c.Problem != nil {
			w.addProblem("cluster "+c.Name(), c.Problem)
			continue
		}
		w.cluster(ctx, c, since)
	}
	if broker.Problem != nil {
		w.addProblem("the broker", broker.Problem)
		return
	}
	w.lists(ctx, broker.Client, "broker", []client.ListOption{client.InNamespace(broker.Namespace)},
		&v1alpha1.ClusterSetList{}, &v1alpha1.ClusterList{}, &v1alpha1.ExportRecordList{},
		&discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}, &coordinationv1.LeaseList{})
}

// reports adds versions and the output of status and doctor.
func (w *writer) reports(ctx context.Context, clusters []*survey.Cluster, broker *survey.Broker) {
	facts := survey.ReadFacts(ctx, clusters, broker, survey.FactOptions{})
	versions := map[string]string{"seamark": version.String(), "go": goruntime.Version(), "platform": goruntime.GOOS + "/" + goruntime.GOARCH}
	for i := range facts.Clusters {
		versions["kubernetes of "+facts.Clusters[i].ID] = facts.Clusters[i].Version
	}
	w.yaml("versions.yaml", versions)
	var text bytes.Buffer
	doctor.Write(&text, doctor.Examine(facts), false, explain.Plain)
	w.text("doctor.txt", text.String())
	text.Reset()
	read := survey.ReadStatus(ctx, clusters, broker)
	status.Write(&text, status.Assess(read), read.Now, true, explain.Plain)
	w.text("status.txt", text.String())
}

// cluster adds the objects and logs of one cluster.
func (w *writer) cluster(ctx context.Context, c *survey.Cluster, since time.Duration) {
	dir := path.Join("clusters", c.Name())
	own := []client.ListOption{client.InNamespace(objects.AgentNamespace)}
	w.lists(ctx, c.Client, path.Join(dir, objects.AgentNamespace), own,
		&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &corev1.PodList{}, &corev1.ServiceList{},
		&corev1.EventList{}, &coordinationv1.LeaseList{})
	w.lists(ctx, c.Client, dir, nil,
		&mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{}, &aboutv1beta1.ClusterPropertyList{}, &claimsv1.ClusterClaimList{})
	w.lists(ctx, c.Client, dir,
		[]client.ListOption{client.MatchingLabels{discoveryv1.LabelManagedBy: objects.ManagedBy}}, &discoveryv1.EndpointSliceList{})
	w.lists(ctx, c.Client, path.Join(dir, "derived"),
		[]client.ListOption{client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark}}, &corev1.ServiceList{})
	for _, key := range []types.NamespacedName{
		{Namespace: "kube-system", Name: "coredns"}, {Namespace: objects.AgentNamespace, Name: survey.DNSServer},
	} {
		config, err := survey.GetIfServed(ctx, c.Client, key, &corev1.ConfigMap{})
		switch {
		case err != nil:
			w.addProblem("ConfigMap "+key.String()+" of "+c.Name(), err)
		case config != nil:
			w.yaml(path.Join(dir, "configmap-"+key.Namespace+"-"+key.Name+".yaml"), config)
		}
	}
	w.exported(ctx, c, dir)
	kinds, problem := survey.ReadKinds(ctx, c.Client, crds.Member)
	w.yaml(path.Join(dir, "kinds.yaml"), map[string]any{"kinds": kinds, "problem": problem})
	w.logs(ctx, c, dir, since)
}

// exported adds the Services of exports with their slices, and the namespaces of exports and
// imports: without them it could not be told what is wrong with a service.
func (w *writer) exported(ctx context.Context, c *survey.Cluster, dir string) {
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	var namespaces corev1.NamespaceList
	var all corev1.NamespaceList
	if err := c.Client.List(ctx, &all); err != nil {
		w.addProblem("Namespace of "+dir, err)
		return
	}
	for i := range all.Items {
		namespaces.Items = append(namespaces.Items, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: all.Items[i].Name}})
	}
	for _, read := range survey.ReadServices(ctx, []*survey.Cluster{c}, "") {
		for i := range read.Exports {
			key := client.ObjectKeyFromObject(&read.Exports[i])
			svc, err := survey.GetIfServed(ctx, c.Client, key, &corev1.Service{})
			if err != nil {
				w.addProblem("Service "+key.String()+" of "+dir, err)
				return
			}
			if svc == nil {
				continue
			}
			var own discoveryv1.EndpointSliceList
			err = c.Client.List(ctx, &own, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name})
			if err == nil {
				err = errors.Join(stripSecrets(svc), meta.EachListItem(&own, stripSecrets))
			}
			if err != nil {
				w.addProblem("EndpointSlice of "+dir, err)
				return
			}
			services.Items, slices.Items = append(services.Items, *svc), append(slices.Items, own.Items...)
		}
	}
	w.yaml(path.Join(dir, "exported", "services.yaml"), &services)
	w.yaml(path.Join(dir, "exported", "endpointslices.yaml"), &slices)
	w.yaml(path.Join(dir, "namespaces.yaml"), &namespaces)
}

// lists adds a file for each kind.
func (w *writer) lists(ctx context.Context, c client.Client, dir string, options []client.ListOption, lists ...client.ObjectList) {
	for _, list := range lists {
		gvk, err := c.GroupVersionKindFor(list)
		if err != nil {
			w.addProblem(dir, err)
			continue
		}
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		kind := gvk.Kind
		if err := c.List(ctx, list, options...); err != nil {
			if !meta.IsNoMatchError(err) {
				w.addProblem(kind+" of "+dir, err)
			}
			continue
		}
		if err := meta.EachListItem(list, stripSecrets); err != nil {
			w.addProblem(kind+" of "+dir, err)
			continue
		}
		w.yaml(path.Join(dir, resource.Resource+".yaml"), list)
	}
}

// stripSecrets removes the key of a cluster's beacons, and the annotation in which kubectl apply
// keeps a copy of the object with any secret in it.
func stripSecrets(obj runtime.Object) error {
	if cluster, ok := obj.(*v1alpha1.Cluster); ok && cluster.Status.Beacons != nil {
		cluster.Status.Beacons.Key = nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := accessor.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	accessor.SetAnnotations(annotations)
	return nil
}

// maxLog is how many bytes of a container's log are kept.
const maxLog = 4 << 20

// logs adds the logs of Seamark's pods, and of the containers before their last restart.
func (w *writer) logs(ctx context.Context, c *survey.Cluster, dir string, since time.Duration) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace)); err != nil {
		w.addProblem("logs of "+c.Name(), err)
		return
	}
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		w.addProblem("logs of "+c.Name(), err)
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, status := range pod.Status.ContainerStatuses {
			for _, previous := range []bool{false, true} {
				if previous && status.RestartCount == 0 {
					continue
				}
				name := status.Name + ".log"
				if previous {
					name = status.Name + ".previous.log"
				}
				text, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
					Container: status.Name, Previous: previous, Timestamps: true,
					SinceSeconds: ptr.To(max(1, int64(since.Seconds()))), LimitBytes: ptr.To[int64](maxLog),
				}).DoRaw(ctx)
				if err != nil {
					w.addProblem("log of "+pod.Name+"/"+status.Name, err)
					continue
				}
				w.text(path.Join(dir, "logs", pod.Name, name), string(text))
			}
		}
	}
}
