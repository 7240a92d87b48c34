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

// Wait waits until every workload of the release is ready in its current generation, except a proxy
// for failovers: the cluster serves without it, and a node that is down, or runs no pods with its
// network, must not make join fail. It calls progress with each new line about a workload that is
// not ready. After the timeout it fails, and the error says which workloads are not ready and why.
func Wait(ctx context.Context, c client.Client, timeout time.Duration, progress func(string)) error {
	var reported, missing []string
	err := wait.PollUntilContextTimeout(ctx, waitPoll, timeout, true, func(ctx context.Context) (bool, error) {
		state, err := readWorkloads(ctx, c)
		if err != nil {
			return false, err
		}
		missing = state.missing()
		if !slices.Equal(missing, reported) {
			for _, line := range missing {
				if !slices.Contains(reported, line) {
					progress(line)
				}
			}
			reported = missing
		}
		return len(missing) == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("release %s is installed, but not ready after %s: %s", ReleaseName, timeout, strings.Join(missing, "; "))
	}
	return err
}

// workloads are the workloads of the release and their pods.
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
	ofRelease := []client.ListOption{client.InNamespace(Namespace), client.MatchingLabels{"app.kubernetes.io/instance": ReleaseName}}
	for _, list := range []client.ObjectList{&deployments, &daemonSets, &pods} {
		if err := c.List(ctx, list, ofRelease...); err != nil {
			return workloads{}, fmt.Errorf("read the workloads of release %s: %w", ReleaseName, err)
		}
	}
	return workloads{deployments.Items, daemonSets.Items, pods.Items}, nil
}

// missing returns a line for each workload that is not ready and has to be: how many pods are, and
// why not all.
func (w workloads) missing() []string {
	var out []string
	add := func(kind, name string, ready, want int32, done bool) {
		if !done {
			out = append(out, fmt.Sprintf("%s %s: %d of %d ready%s", kind, name, ready, want, w.problemOf(name)))
		}
	}
	for i := range w.deployments {
		d := &w.deployments[i]
		want := ptr.Deref(d.Spec.Replicas, 1)
		add("Deployment", d.Name, d.Status.ReadyReplicas, want,
			d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == want &&
				d.Status.Replicas == want && d.Status.AvailableReplicas == want)
	}
	for i := range w.daemonSets {
		d := &w.daemonSets[i]
		if runsForFailover(d) {
			continue
		}
		want := d.Status.DesiredNumberScheduled
		add("DaemonSet", d.Name, d.Status.NumberReady, want,
			isRolledOut(d) && d.Status.NumberAvailable == want)
	}
	return out
}

// problemOf returns the problem of the first pod of a workload that has one.
func (w workloads) problemOf(workload string) string {
	for i := range w.pods {
		pod := &w.pods[i]
		if "seamark-"+pod.Labels["app.kubernetes.io/component"] != workload {
			continue
		}
		if reason := podProblem(pod); reason != "" {
			return fmt.Sprintf(" (pod %s: %s)", pod.Name, reason)
		}
	}
	return ""
}

// podProblem returns why a pod is not ready, or "" if its status does not say.
func podProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return withMessage(c.Reason, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if ended := c.LastTerminationState.Terminated; ended != nil && !c.Ready {
			return fmt.Sprintf("ended with code %d%s; see its log: kubectl -n %s logs %s --previous",
				ended.ExitCode, restarts(c.RestartCount), Namespace, pod.Name)
		}
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			return withMessage(waiting.Reason, waiting.Message)
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

func withMessage(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
