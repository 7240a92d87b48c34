package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// sandboxName is not the default, so that a developer's own sandbox is not touched.
const sandboxName = "bench"

// newSandbox creates a sandbox of three clusters with a node each. The first has the broker. The
// agents are pods, with the flags of the chart: agentArgs must be empty.
func newSandbox(ctx context.Context, plane objects.DataPlane, agentArgs []string) (*environment, error) {
	if len(agentArgs) > 0 {
		return nil, errors.New("-agent-args has no effect with -sandbox")
	}
	// A fixed folder, so that the next run removes what a killed one left.
	base := filepath.Join(os.TempDir(), "seamark-bench-sandbox")
	down := func() error { return testenv.Down(context.WithoutCancel(ctx), sandboxName, os.Stderr) }
	if err := errors.Join(os.Setenv(sandbox.DirEnv, base), down(), os.MkdirAll(base, 0o700)); err != nil {
		return nil, err
	}
	e := &environment{plane: plane, budgets: budgetsOf[plane.Name]}
	e.closers = append(e.closers, func() {
		if err := errors.Join(down(), os.RemoveAll(base)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	if err := e.startSandbox(ctx, base); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *environment) startSandbox(ctx context.Context, dir string) error {
	env, err := testenv.Up(ctx, dir, sandbox.Options{Name: sandboxName, Clusters: 3, DataPlane: e.plane.Name, Progress: os.Stderr})
	if err != nil {
		return err
	}
	for i, s := range []**server{&e.broker, &e.exporter, &e.importer} {
		config, err := env.Config(env.Clusters()[i])
		if err != nil {
			return err
		}
		if *s, err = newServer([]string{"broker", "exporter", "importer"}[i], config); err != nil {
			return err
		}
	}
	for _, m := range e.members() {
		// Not with ctx: agents that were paused have to continue after it ended.
		m.agents = func() ([]int, error) { return m.agentPods(context.WithoutCancel(ctx)) }
		if _, err := m.agents(); err != nil {
			return fmt.Errorf("find the agents of the %s: %w", m.name, err)
		}
	}
	if err := e.createNamespaces(ctx); err != nil {
		return err
	}
	if err := e.chooseEndpoints(ctx); err != nil {
		return err
	}
	if e.client, err = e.startClient(ctx, env.WorkloadImage()); err != nil {
		return err
	}
	return e.awaitNoRequests(ctx, afterSome)
}

// chooseEndpoints takes the addresses of endpoints from the range of the exporter's pods: importers
// refuse others. Real pods have the first addresses of the range.
func (e *environment) chooseEndpoints(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := e.exporter.client.List(ctx, &nodes); err != nil {
		return err
	}
	if len(nodes.Items) == 0 {
		return errors.New("the exporter has no node")
	}
	const pods = 256
	pool, err := netip.ParsePrefix(nodes.Items[0].Spec.PodCIDR)
	if err != nil {
		return fmt.Errorf("range of the exporter's pods: %w", err)
	}
	e.endpoints = pool
	e.used.Store(pods)
	return nil
}

// agentPods returns the process ids of all replicas of the agent.
func (s *server) agentPods(ctx context.Context) ([]int, error) {
	const program = "seamark-agent"
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace)); err != nil {
		return nil, err
	}
	var pids []int
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, program+"-") {
			pid, err := podProcess(pods.Items[i].Name, program)
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, errors.New("there is no pod of it")
	}
	return pids, nil
}

// podProcess returns the id of a program's process in a pod of this machine.
func podProcess(pod, program string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline")) // fails for processes that just ended
		if first, _, _ := strings.Cut(string(command), "\x00"); filepath.Base(first) != program {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if slices.Contains(strings.Split(string(environment), "\x00"), "HOSTNAME="+pod) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no process %s", pod, program)
}

// startPod runs the workload image in a pod and returns the pod once it runs and has an address.
func (s *server) startPod(ctx context.Context, name, image string, args ...string) (*corev1.Pod, error) {
	// Other sandboxes of this machine must have no pod of the same name: see podProcess.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: name + "-" + rand.String(8)},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: name, Image: image, Args: args}},
		},
	}
	if err := s.client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	err := testenv.Poll(ctx, "pod "+pod.Name, 2*time.Minute, func() error {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
	return pod, err
}
