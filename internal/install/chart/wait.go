package chart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const waitPoll = 500 * time.Millisecond

// Wait returns when every workload of the release runs as it was last asked to. Each time what is missing changes it tells progress. It
// fails when the timeout passes, and says what was still missing and why.
func Wait(ctx context.Context, c client.Client, timeout time.Duration, progress func(string)) error {
	var told, missing []string
	err := wait.PollUntilContextTimeout(ctx, waitPoll, timeout, true, func(ctx context.Context) (bool, error) {
		state, err := readWorkloads(ctx, c)
		if err != nil {
			return false, err
		}
		missing = state.missing()
		if !slices.Equal(missing, told) {
			for _, line := range missing {
				if !slices.Contains(told, line) {
					progress(line)
				}
			}
			told = missing
		}
		return len(missing) == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("release %s is installed, but not ready after %s: %s", ReleaseName, timeout, strings.Join(missing, "; "))
	}
	return err
}

// workloads are what the release runs.
type workloads struct {
	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
	pods        []corev1.Pod
}

func readWorkloads(ctx context.Context, c client.Client) (workloads, error) {
	var (
		deployments appsv1.DeploymentList
		daemonSets  appsv1.DaemonSetList
		pods        corev1.PodList
	)
	ours := []client.ListOption{client.InNamespace(Namespace), client.MatchingLabels{"app.kubernetes.io/instance": ReleaseName}}
	for _, list := range []client.ObjectList{&deployments, &daemonSets, &pods} {
		if err := c.List(ctx, list, ours...); err != nil {
			return workloads{}, fmt.Errorf("see whether release %s is ready: %w", ReleaseName, err)
		}
	}
	return workloads{deployments.Items, daemonSets.Items, pods.Items}, nil
}

// missing says of each workload that does not run as it should how far it is and why.
func (w workloads) missing() []string {
	var out []string
	add := func(kind, name string, ready, want int32, done bool) {
		if !done {
			out = append(out, fmt.Sprintf("%s %s: %d of %d ready%s", kind, name, ready, want, w.why(name)))
		}
	}
	for i := range w.deployments {
		d := &w.deployments[i]
		want := ptr.Deref(d.Spec.Replicas, 1)
		add("Deployment", d.Name, d.Status.ReadyReplicas, want,
			d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == want && d.Status.Replicas == want && d.Status.AvailableReplicas == want)
	}
	for i := range w.daemonSets {
		d := &w.daemonSets[i]
		want := d.Status.DesiredNumberScheduled
		add("DaemonSet", d.Name, d.Status.NumberReady, want,
			d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled == want && d.Status.NumberAvailable == want)
	}
	return out
}

// why looks at the pods of a workload for the first that says what it lacks.
func (w workloads) why(workload string) string {
	for i := range w.pods {
		pod := &w.pods[i]
		if "seamark-"+pod.Labels["app.kubernetes.io/component"] != workload {
			continue
		}
		if reason := trouble(pod); reason != "" {
			return fmt.Sprintf(" (pod %s: %s)", pod.Name, reason)
		}
	}
	return ""
}

// trouble is what keeps a pod from being ready, as far as it says.
func trouble(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return say(c.Reason, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if ended := c.LastTerminationState.Terminated; ended != nil && !c.Ready {
			return fmt.Sprintf("ended with code %d%s; see its log: kubectl -n %s logs %s --previous", ended.ExitCode, restarts(c.RestartCount), Namespace, pod.Name)
		}
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			return say(waiting.Reason, waiting.Message)
		}
	}
	return ""
}

func restarts(n int32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", restarted %d times", n)
}

func say(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
