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
	// cleanupFlag makes the proxy take its rules out of the kernel when it ends, which it does not do otherwise: traffic goes on while
	// it is replaced.
	cleanupFlag = "--cleanup-on-exit"
)

// StopAgent ends the agent before its cluster leaves: one that still runs would start again and again without its membership. With
// patience above zero it returns when its pods are gone, or fails after that time. An agent that is not there is as good.
func StopAgent(ctx context.Context, c client.Client, patience time.Duration) error {
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: agentDeployment}}
	propagation := metav1.DeletePropagationBackground
	if patience > 0 {
		propagation = metav1.DeletePropagationForeground
	}
	err := c.Delete(ctx, agent, client.PropagationPolicy(propagation))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	if patience == 0 {
		return nil
	}
	return until(ctx, patience, "the agent's pods to end", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(agent), agent)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// RetireProxy makes every node's proxy one that takes its rules with it when it ends, so that uninstalling leaves nothing in the nodes'
// kernels. Without a proxy there is nothing to do.
func RetireProxy(ctx context.Context, c client.Client, patience time.Duration) error {
	proxy := &appsv1.DaemonSet{}
	key := types.NamespacedName{Namespace: Namespace, Name: proxyDaemonSet}
	if err := c.Get(ctx, key, proxy); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := proxy.DeepCopy()
	if !retiring(proxy) {
		return nil
	}
	if err := c.Patch(ctx, proxy, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("make the proxies remove their rules when they end: %w", err)
	}
	return until(ctx, patience, "the proxies to start with "+cleanupFlag, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, key, proxy); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		s := proxy.Status
		return s.ObservedGeneration >= proxy.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberReady == s.DesiredNumberScheduled, nil
	})
}

// retiring adds the flag, and lets all nodes change at once; false when it was there.
func retiring(proxy *appsv1.DaemonSet) bool {
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

func until(ctx context.Context, patience time.Duration, what string, check wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, waitPoll, patience, true, check)
	if wait.Interrupted(err) {
		return fmt.Errorf("waited %s for %s: see kubectl -n %s get pods, or say --no-wait: %w", patience, what, Namespace, err)
	}
	return err
}
