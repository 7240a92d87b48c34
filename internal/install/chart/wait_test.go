package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// deployment returns a Deployment of two replicas.
func deployment(status appsv1.DeploymentStatus) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "seamark-agent", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: status,
	}
}

func pod(status corev1.PodStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "seamark-agent-x", Labels: map[string]string{"app.kubernetes.io/component": "agent"}}, Status: status,
	}
}

func waiting(reason, message string) corev1.Pod {
	return pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
	}})
}

// proxyWith returns a DaemonSet of which no pod is ready.
func proxyWith(args ...string) appsv1.DaemonSet {
	proxy := appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3}}
	proxy.Name = "seamark-proxy"
	proxy.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: args}}
	return proxy
}

// A proxy that removes its rules by itself needs no restart before it is uninstalled; one that was
// the data plane until now does, as long as a pod of it may run.
func TestRunsForFailover(t *testing.T) {
	behind := proxyWith("--node-name=a", "--failover-only")
	behind.Status.UpdatedNumberScheduled = 2
	for name, test := range map[string]struct {
		proxy              appsv1.DaemonSet
		failover, complete bool
	}{
		"data plane":             {proxyWith("--node-name=a"), false, true},
		"for failovers":          {proxyWith("--node-name=a", "--failover-only"), true, true},
		"data plane until now":   {behind, true, false},
		"has no container (yet)": {appsv1.DaemonSet{}, false, true},
	} {
		if failover, complete := runsForFailover(&test.proxy), isRolledOut(&test.proxy); failover != test.failover || complete != test.complete {
			t.Errorf("%s: for failovers %t, rolled out %t", name, failover, complete)
		}
	}
}

// The line about a workload that is not ready contains the reason from its pods.
func TestMissing(t *testing.T) {
	half := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1}
	full := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	unobserved, rolling := full, full
	unobserved.ObservedGeneration = 1
	rolling.Replicas = 3
	for name, test := range map[string]struct {
		w    workloads
		want string
	}{
		"ready":        {workloads{deployments: []appsv1.Deployment{deployment(full)}}, ""},
		"not observed": {workloads{deployments: []appsv1.Deployment{deployment(unobserved)}}, "Deployment seamark-agent: 2 of 2 ready"},
		"rolling":      {workloads{deployments: []appsv1.Deployment{deployment(rolling)}}, "Deployment seamark-agent: 2 of 2 ready"},
		"half ready":   {workloads{deployments: []appsv1.Deployment{deployment(half)}}, "Deployment seamark-agent: 1 of 2 ready"},
		"no image": {workloads{
			deployments: []appsv1.Deployment{deployment(half)},
			pods:        []corev1.Pod{waiting("ContainerCreating", ""), waiting("ErrImagePull", "not found")},
		},
			"Deployment seamark-agent: 1 of 2 ready (pod seamark-agent-x: ErrImagePull: not found)"},
		"no node": {workloads{deployments: []appsv1.Deployment{deployment(half)}, pods: []corev1.Pod{pod(corev1.PodStatus{
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
			}},
		})}}, "Deployment seamark-agent: 1 of 2 ready (pod seamark-agent-x: Unschedulable: 0/1 nodes are available)"},
		"crashing": {workloads{deployments: []appsv1.Deployment{deployment(half)}, pods: []corev1.Pod{pod(corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{
				RestartCount: 3, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
			}},
		})}}, "ended with code 1, restarted 3 times; see its log: kubectl -n seamark-system logs seamark-agent-x --previous"},
		"daemon set": {workloads{daemonSets: []appsv1.DaemonSet{{
			ObjectMeta: metav1.ObjectMeta{Name: "seamark-proxy"},
			Status: appsv1.DaemonSetStatus{
				DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberReady: 2, NumberAvailable: 2,
			},
		}}}, "DaemonSet seamark-proxy: 2 of 3 ready"},
		"proxy for failovers": {workloads{daemonSets: []appsv1.DaemonSet{proxyWith("--failover-only")}}, ""},
	} {
		got := strings.Join(test.w.missing(), "\n")
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAddCleanupFlag(t *testing.T) {
	proxy := &appsv1.DaemonSet{}
	proxy.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--x"}}}
	if !addCleanupFlag(proxy) || strings.Join(proxy.Spec.Template.Spec.Containers[0].Args, " ") != "--x --cleanup-on-exit" {
		t.Errorf("args are %v", proxy.Spec.Template.Spec.Containers[0].Args)
	}
	if addCleanupFlag(proxy) {
		t.Error("the flag was added twice")
	}
}
