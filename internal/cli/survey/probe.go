package survey

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	probePoll    = 200 * time.Millisecond
	probeTimeout = 90 * time.Second
)

// target is an endpoint of another cluster.
type target struct {
	cluster, address string
	port             int32
}

// probe tries to reach a pod of every other cluster from a pod of this one, if the user gave an
// image for it.
func (c *Cluster) probe(ctx context.Context, b *Broker, image string, out *doctor.Cluster) {
	if image == "" {
		out.ProbeSkipped = "not tried: it takes a pod; give --probe-image IMAGE (with sh and nc, such as busybox)"
		return
	}
	if b.Problem != nil {
		out.ProbeSkipped = "not tried: the endpoints of other clusters are read from the broker, which cannot be asked"
		return
	}
	var list discoveryv1.EndpointSliceList
	if err := b.Client.List(ctx, &list, client.InNamespace(b.Namespace)); err != nil {
		out.ProbeSkipped = "not tried: " + objects.ErrorText(err)
		return
	}
	targets := probeTargets(list.Items, out.ID)
	if len(targets) == 0 {
		out.ProbeSkipped = "not tried: no other cluster exports a ready TCP endpoint"
	}
	for _, t := range targets {
		out.Probes = append(out.Probes, c.runProbe(ctx, image, t))
	}
}

// probeTargets returns one ready TCP endpoint of each other cluster.
func probeTargets(all []discoveryv1.EndpointSlice, self string) []target {
	var out []target
	for i := range all {
		source := all[i].Labels[mcsv1beta1.LabelSourceCluster]
		if source == self || slices.ContainsFunc(out, func(t target) bool { return t.cluster == source }) {
			continue
		}
		for _, p := range all[i].Ports {
			if p.Port == nil || ptr.Deref(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
				continue
			}
			for _, e := range all[i].Endpoints {
				if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
					out = append(out, target{source, e.Addresses[0], *p.Port})
					break
				}
			}
			break
		}
	}
	slices.SortFunc(out, func(a, b target) int { return strings.Compare(a.cluster, b.cluster) })
	return slices.CompactFunc(out, func(a, b target) bool { return a.cluster == b.cluster })
}

// runProbe runs a pod that connects to the target, and deletes it.
func (c *Cluster) runProbe(ctx context.Context, image string, t target) doctor.Probe {
	probe := doctor.Probe{Cluster: t.cluster, Address: fmt.Sprintf("%s port %d", t.address, t.port)}
	pod := probePod(image, t)
	if err := c.Client.Create(ctx, pod); err != nil {
		probe.Detail = "the pod cannot be created: " + objects.ErrorText(err)
		return probe
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)) // its deadline ends it anyway
	}()
	err := wait.PollUntilContextTimeout(ctx, probePoll, probeTimeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
	})
	switch {
	case wait.Interrupted(err):
		probe.Detail = fmt.Sprintf("the pod did not run within %s (phase %s): can the image be pulled?", probeTimeout, pod.Status.Phase)
	case err != nil:
		probe.Detail = objects.ErrorText(err)
	case pod.Status.Phase == corev1.PodSucceeded:
		probe.Reached = true
	default:
		probe.Detail = "no connection within 5 s"
	}
	return probe
}

func probePod(image string, t target) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "seamark-doctor-", Namespace: objects.AgentNamespace,
			Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(probeTimeout.Seconds())),
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "probe", Image: image, Command: []string{"sh", "-c", `nc -z -w 5 "$0" "$1"`, t.address, fmt.Sprint(t.port)},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532),
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
}
