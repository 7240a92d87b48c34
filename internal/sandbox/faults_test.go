//go:build linux

package sandbox

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/sandbox/fault"
)

// TestRulesOfNodes checks that faults are in the rules of the receiving node only, once for each
// direction, and that packets are dropped before they are delayed.
func TestRulesOfNodes(t *testing.T) {
	p := newPlan("x", "/d", "/r", 0, 3, Dual)
	east, west, north := p.clusters[0], p.clusters[1], p.clusters[2]
	drop := func(from cluster, percent float64) fault.Rule {
		return fault.Rule{From: from.ranges(), Percent: percent}
	}
	delay := fault.Fault{Kind: fault.Delay, From: "west", To: "north", Delay: metav1.Duration{Duration: time.Second}}
	loss := fault.Fault{Kind: fault.Loss, From: "west", To: "north", Percent: 10}
	cut := fault.Fault{Kind: fault.Cut, From: "east", To: "north"}
	samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	for name, test := range map[string]struct {
		faults []fault.Fault
		want   map[string][]fault.Rule
	}{
		"none": {},
		"one way": {
			[]fault.Fault{cut},
			map[string][]fault.Rule{"north": {drop(east, 100)}},
		},
		"both ways": {
			[]fault.Fault{cut, {Kind: fault.Cut, From: "north", To: "east"}},
			map[string][]fault.Rule{"north": {drop(east, 100)}, "east": {drop(north, 100)}},
		},
		"drops before delays": {
			[]fault.Fault{delay, loss, cut},
			map[string][]fault.Rule{"north": {drop(west, 10), drop(east, 100), {From: west.ranges(), Via: "delay-west"}}},
		},
		"control plane": {faults: []fault.Fault{{Kind: fault.ControlPlane, Cluster: "west"}}},
		"node": {
			[]fault.Fault{{Kind: fault.Node, Cluster: "west"}},
			map[string][]fault.Rule{"west": {{To: slices.Concat(west.podCIDRs, west.serviceCIDRs), Percent: 100}}},
		},
	} {
		for _, c := range p.clusters {
			if diff := cmp.Diff(test.want[c.name], p.rules(c, test.faults), samePrefix); diff != "" {
				t.Errorf("%s, rules of %s:\n%s", name, c.name, diff)
			}
		}
	}
	if got := p.relays(west, []fault.Fault{delay, loss, cut}); len(got) != 0 {
		t.Errorf("west sends, but has the relays %v", got)
	}
	got := p.relays(north, []fault.Fault{delay, loss, cut})
	if args := strings.Join(got["delay-west"].args, " "); len(got) != 1 ||
		args != "seamark-sandbox-relay --device=delay-west --beside=eth0 --delay=1s" {
		t.Errorf("north has the relays %v", got)
	}
	for _, name := range clusterNames {
		if len(relayName(name)) > 15 {
			t.Errorf("%s is too long for a device", relayName(name))
		}
	}
}

// TestRestartedPods checks for which pods Heal waits after a node was stopped.
func TestRestartedPods(t *testing.T) {
	since := time.Now()
	pod := func(state corev1.ContainerState) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: state}}
		return p
	}
	runningSince := func(at time.Time) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	deleted, failed, once := pod(runningSince(since.Add(-time.Hour))), pod(ended), pod(ended)
	deleted.DeletionTimestamp = &metav1.Time{Time: since}
	failed.Status.Phase = corev1.PodFailed
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"running again":    {pod(runningSince(since)), ""},
		"stale":            {pod(runningSince(since.Add(-time.Hour))), "has not reported yet that container web"},
		"created":          {pod(waiting("ContainerCreating")), "container web is being created"},
		"initialized":      {pod(waiting("PodInitializing")), "container web is being created"},
		"crashing":         {pod(waiting("CrashLoopBackOff")), ""},
		"ended":            {pod(ended), "container web is not started again yet"},
		"ended for good":   {once, ""},
		"failed":           {failed, ""},
		"being deleted":    {deleted, ""},
		"never started up": {pod(corev1.ContainerState{}), ""},
	} {
		err := restarted(test.pod, since)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
