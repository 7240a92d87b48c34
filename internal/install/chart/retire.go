package chart

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	agentDeployment = "seamark-agent"
	proxyDaemonSet  = "seamark-proxy"
	// cleanupFlag makes the proxy remove its rules from the kernel on exit. Otherwise they stay, so
	// that traffic continues while the proxy is replaced.
	cleanupFlag = "--cleanup-on-exit"
)

// StopAgent deletes the agent's Deployment before its cluster leaves: without its membership the
// agent would restart again and again. With a timeout above zero it waits until the pods are gone,
// and fails after the timeout. Without an agent it does nothing.
func StopAgent(ctx context.Context, c client.Client, timeout time.Duration) error {
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: agentDeployment}}
	propagation := metav1.DeletePropagationBackground
	if timeout > 0 {
		propagation = metav1.DeletePropagationForeground
	}
	err := c.Delete(ctx, agent, client.PropagationPolicy(propagation))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	if timeout == 0 {
		return nil
	}
	return waitUntil(ctx, timeout, "the agent's pods to end", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(agent), agent)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// RetireProxy restarts every node's proxy with cleanupFlag, so that uninstalling leaves no rules in
// the nodes' kernels. Without a proxy it does nothing, and neither if all pods run with
// failoverFlag: such a proxy always removes its rules when it ends.
func RetireProxy(ctx context.Context, c client.Client, timeout time.Duration) error {
	proxy := &appsv1.DaemonSet{}
	key := types.NamespacedName{Namespace: Namespace, Name: proxyDaemonSet}
	if err := c.Get(ctx, key, proxy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if runsForFailover(proxy) && isRolledOut(proxy) {
		return nil
	}
	before := proxy.DeepCopy()
	if !addCleanupFlag(proxy) {
		return nil
	}
	if err := c.Patch(ctx, proxy, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("add %s to DaemonSet %s: %w", cleanupFlag, proxyDaemonSet, err)
	}
	return waitUntil(ctx, timeout, "the proxies to start with "+cleanupFlag, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, key, proxy); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		return isRolledOut(proxy) && proxy.Status.NumberReady == proxy.Status.DesiredNumberScheduled, nil
	})
}

// runsForFailover reports whether the proxy runs beside the data plane of the cluster, which works
// without it.
func runsForFailover(proxy *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(proxy.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, failoverFlag)
	})
}

// isRolledOut reports whether all pods of a DaemonSet are of its current generation, ready or not.
func isRolledOut(d *appsv1.DaemonSet) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled
}

// addCleanupFlag adds the flag and lets the DaemonSet update all nodes at once. It reports false if
// the flag is already set.
func addCleanupFlag(proxy *appsv1.DaemonSet) bool {
	containers := proxy.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "proxy" })
	if at < 0 || slices.Contains(containers[at].Args, cleanupFlag) {
		return false
	}
	containers[at].Args = append(slices.Clone(containers[at].Args), cleanupFlag)
	proxy.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("100%"))},
	}
	return true
}

// waitUntil polls check until it returns true. goal names what it waits for, in the error after the
// timeout.
func waitUntil(ctx context.Context, timeout time.Duration, goal string, check wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, waitPoll, timeout, true, check)
	if wait.Interrupted(err) {
		return fmt.Errorf("waited %s for %s: see kubectl -n %s get pods, or say --no-wait: %w", timeout, goal, Namespace, err)
	}
	return err
}
