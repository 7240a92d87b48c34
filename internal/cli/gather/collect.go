package gather

import (
	"bytes"
	"context"
	"encoding/base64"
	"path"
	goruntime "runtime"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

// all gathers everything. What cannot be had is noted, and the rest goes on.
func (g *gatherer) all(ctx context.Context, sites []*survey.Cluster, h *survey.Broker, since time.Duration) {
	for _, s := range sites {
		if s.Membership != nil {
			g.hide(s.Membership.Token)
			g.hide(base64.StdEncoding.EncodeToString([]byte(s.Membership.Token)))
			g.hide(strings.TrimSpace(string(s.Membership.CAData)))
		}
		if s.Config != nil {
			g.hide(s.Config.BearerToken)
			g.hide(s.Config.Password)
		}
	}
	g.reports(ctx, sites, h)
	for _, s := range sites {
		if s.Problem != nil {
			g.miss("cluster "+s.Name(), s.Problem)
			continue
		}
		g.cluster(ctx, s, since)
	}
	if h.Problem != nil {
		g.miss("the broker", h.Problem)
		return
	}
	g.lists(ctx, h.Client, "broker", []client.ListOption{client.InNamespace(h.Namespace)}, &v1alpha1.ClusterSetList{}, &v1alpha1.ClusterList{}, &v1alpha1.ExportRecordList{},
		&discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}, &coordinationv1.LeaseList{})
}

// reports adds versions and what status and doctor say.
func (g *gatherer) reports(ctx context.Context, sites []*survey.Cluster, h *survey.Broker) {
	facts := survey.ReadFacts(ctx, sites, h, survey.FactOptions{})
	versions := map[string]string{"seamark": version.String(), "go": goruntime.Version(), "platform": goruntime.GOOS + "/" + goruntime.GOARCH}
	for i := range facts.Clusters {
		versions["kubernetes of "+facts.Clusters[i].ID] = facts.Clusters[i].Version
	}
	g.yaml("versions.yaml", versions)
	var text bytes.Buffer
	doctor.Write(&text, doctor.Examine(facts), false, explain.Plain)
	g.text("doctor.txt", text.String())
	text.Reset()
	read := survey.ReadStatus(ctx, sites, h)
	status.Write(&text, status.Assess(read), read.Now, true, explain.Plain)
	g.text("status.txt", text.String())
}

// cluster adds what one cluster has.
func (g *gatherer) cluster(ctx context.Context, s *survey.Cluster, since time.Duration) {
	dir := path.Join("clusters", s.Name())
	ours := []client.ListOption{client.InNamespace(objects.AgentNamespace)}
	g.lists(ctx, s.Client, path.Join(dir, objects.AgentNamespace), ours, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &corev1.PodList{}, &corev1.ServiceList{},
		&corev1.EventList{}, &coordinationv1.LeaseList{})
	g.lists(ctx, s.Client, dir, nil, &mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{}, &aboutv1beta1.ClusterPropertyList{}, &claimsv1.ClusterClaimList{})
	g.lists(ctx, s.Client, dir, []client.ListOption{client.MatchingLabels{discoveryv1.LabelManagedBy: objects.ManagedBy}}, &discoveryv1.EndpointSliceList{})
	g.lists(ctx, s.Client, path.Join(dir, "derived"), []client.ListOption{client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark}}, &corev1.ServiceList{})
	for _, key := range []types.NamespacedName{{Namespace: "kube-system", Name: "coredns"}, {Namespace: objects.AgentNamespace, Name: survey.DNSName}} {
		config, err := objects.GetOrNil(ctx, s.Client, key, &corev1.ConfigMap{})
		switch {
		case err != nil:
			g.miss("ConfigMap "+key.String()+" of "+s.Name(), err)
		case config != nil:
			g.yaml(path.Join(dir, "configmap-"+key.Namespace+"-"+key.Name+".yaml"), config)
		}
	}
	kinds, problem := survey.ReadKinds(ctx, s.Client, crds.Member)
	g.yaml(path.Join(dir, "kinds.yaml"), map[string]any{"kinds": kinds, "problem": problem})
	g.logs(ctx, s, dir, since)
}

// lists adds a file for each kind.
func (g *gatherer) lists(ctx context.Context, c client.Client, dir string, options []client.ListOption, lists ...client.ObjectList) {
	for _, list := range lists {
		gvk, err := c.GroupVersionKindFor(list)
		if err != nil {
			g.miss(dir, err)
			continue
		}
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		kind := gvk.Kind
		if err := c.List(ctx, list, options...); err != nil {
			if !meta.IsNoMatchError(err) {
				g.miss(kind+" of "+dir, err)
			}
			continue
		}
		// Somebody may have applied an object with a secret in it: kubectl keeps a copy in this annotation.
		if err := meta.EachListItem(list, stripApplied); err != nil {
			g.miss(kind+" of "+dir, err)
			continue
		}
		g.yaml(path.Join(dir, resource.Resource+".yaml"), list)
	}
}

func stripApplied(obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := accessor.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	accessor.SetAnnotations(annotations)
	return nil
}

// maxLog is how much of a container's log is kept: the end of it.
const maxLog = 4 << 20

// logs adds the logs of our pods, of the container before a restart too.
func (g *gatherer) logs(ctx context.Context, s *survey.Cluster, dir string, since time.Duration) {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace)); err != nil {
		g.miss("logs of "+s.Name(), err)
		return
	}
	clients, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		g.miss("logs of "+s.Name(), err)
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
					Container: status.Name, Previous: previous, Timestamps: true, SinceSeconds: ptr.To(max(1, int64(since.Seconds()))), LimitBytes: ptr.To[int64](maxLog),
				}).DoRaw(ctx)
				if err != nil {
					g.miss("log of "+pod.Name+"/"+status.Name, err)
					continue
				}
				g.text(path.Join(dir, "logs", pod.Name, name), string(text))
			}
		}
	}
}
