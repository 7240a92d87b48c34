//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
)

// The program of the agent and the labels of its pods in the chart.
const (
	agentProgram = "seamark-agent"
	agentLabels  = "app.kubernetes.io/name=seamark,app.kubernetes.io/component=agent"
)

// componentsOf returns the components that a fault stops, in the order in which they start.
func componentsOf(kind fault.Kind) []string {
	switch kind {
	case fault.ControlPlane:
		return []string{etcd, apiserver, controllerManager, scheduler}
	case fault.Node:
		return []string{containerd, kubelet, kubeProxy}
	}
	return nil
}

// stopFor kills what a fault stops. The last component is killed first, so that none reports that
// another one is gone: controllers would act on it.
//
// A killed agent cannot start without its API server. The shims of killed containers stay: they
// tell the next containerd that the containers have ended.
func (c cluster) stopFor(kind fault.Kind) error {
	for _, name := range slices.Backward(componentsOf(kind)) {
		if p, alive := c.running(name); alive {
			if err := p.kill(0); err != nil {
				return err
			}
		}
	}
	if kind == fault.Node {
		return killAll(c.inContainer)
	}
	agents, err := processes(func(proc string) bool { return c.inContainer(proc) && runs(proc, agentProgram) })
	for _, p := range agents {
		err = errors.Join(err, p.kill(0))
	}
	return err
}

// runs reports whether a process runs a program of the name.
func runs(proc, program string) bool {
	text, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	first, _, _ := bytes.Cut(text, []byte{0})
	return err == nil && filepath.Base(string(first)) == program
}

// restart starts what healed faults had stopped, and what has ended since, and waits until it is
// ready as far as the faults that remain allow it.
func (s *Sandbox) restart(ctx context.Context, c cluster, healed, remaining []fault.Kind) error {
	if len(healed) == 0 {
		return nil
	}
	if s.state.Kube == "" {
		return fmt.Errorf("an older version created sandbox %s: run seamark sandbox up, which starts what was stopped", s.plan.name)
	}
	bin, began := binaries{kube: s.state.Kube, node: s.state.NodeParts}, time.Now()
	for _, kind := range []fault.Kind{fault.ControlPlane, fault.Node} {
		if slices.Contains(remaining, kind) {
			continue
		}
		for _, name := range componentsOf(kind) {
			err := c.start(c.component(name, bin, s.plan))
			if err == nil && name == containerd {
				err = c.awaitContainerd(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	return c.awaitHealed(ctx, began, healed, remaining)
}

// awaitHealed waits for what was started at a time.
func (c cluster) awaitHealed(ctx context.Context, began time.Time, healed, remaining []fault.Kind) error {
	if slices.Contains(remaining, fault.ControlPlane) {
		return nil
	}
	if err := c.awaitAPIServer(ctx); err != nil {
		return err
	}
	if slices.Contains(remaining, fault.Node) {
		return nil
	}
	if err := c.awaitNode(ctx); err != nil {
		return err
	}
	if slices.Contains(healed, fault.Node) {
		return c.awaitPods(ctx, "all pods", metav1.NamespaceAll, "", began)
	}
	if err := c.awaitHeartbeat(ctx, began); err != nil {
		return err
	}
	return c.awaitPods(ctx, "the agent", objects.AgentNamespace, agentLabels, began)
}

// awaitHeartbeat waits until kubelet has renewed its lease since a time, so it has noticed that the
// API server is back.
func (c cluster) awaitHeartbeat(ctx context.Context, since time.Time) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, kubelet, "a heartbeat of the node", func(ctx context.Context) error {
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, c.node(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if renewed := lease.Spec.RenewTime; renewed == nil || renewed.Time.Before(since) {
			return fmt.Errorf("kubelet last renewed its lease at %s", renewed)
		}
		return nil
	})
}

// awaitPods waits until the containers of pods have started again since a time. Pods of the system
// must also be ready; those of users may never be.
func (c cluster) awaitPods(ctx context.Context, what string, namespace, labels string, since time.Time) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	since = since.Truncate(time.Second) // the precision of a container's status
	return c.await(ctx, kubelet, what, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			err := restarted(&pod, since)
			if err == nil && slices.Contains([]string{metav1.NamespaceSystem, objects.AgentNamespace}, pod.Namespace) {
				err = podReady(&pod)
			}
			if err != nil {
				return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
		return nil
	})
}

// restarted returns an error while kubelet has yet to start containers of a pod that it had not
// started since a time. Containers that cannot start for another reason are not waited for.
func restarted(pod *corev1.Pod, since time.Time) error {
	if over(pod) {
		return nil
	}
	for _, container := range pod.Status.ContainerStatuses {
		running, waiting, ended := container.State.Running, container.State.Waiting, container.State.Terminated
		switch {
		case running != nil && running.StartedAt.Time.Before(since):
			return fmt.Errorf("kubelet has not reported yet that container %s was started again", container.Name)
		case waiting != nil && (waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing"):
			return fmt.Errorf("container %s is being created", container.Name)
		case ended != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
			return fmt.Errorf("container %s is not started again yet", container.Name)
		}
	}
	return nil
}

func podReady(pod *corev1.Pod) error {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
	if !ready && !over(pod) {
		return errors.New("it is not ready")
	}
	return nil
}

// over reports whether a pod has ended or is being deleted.
func over(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
