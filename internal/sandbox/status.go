//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
)

// Status is the current state of a sandbox.
type Status struct {
	Name       string             `json:"name"`
	Dir        string             `json:"dir"`
	Kubeconfig string             `json:"kubeconfig"`
	Family     Family             `json:"ipFamily"`
	DataPlane  v1alpha1.DataPlane `json:"dataPlane"`
	Image      string             `json:"image"`
	Workload   string             `json:"workloadImage"`
	Clusters   []ClusterStatus    `json:"clusters"`
	Faults     []fault.Fault      `json:"faults"`
}

// ClusterStatus is the current state of a cluster.
type ClusterStatus struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	// Ready reports whether all components run and the node accepts pods; otherwise Problem says what
	// is wrong.
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
	// RunningPods and Pods count the pods of all namespaces.
	RunningPods int      `json:"runningPods"`
	Pods        int      `json:"pods"`
	Region      string   `json:"region"`
	Zone        string   `json:"zone"`
	NodeIPs     []string `json:"nodeIPs"`
	PodCIDRs    []string `json:"podCIDRs"`
	ServiceCIDR []string `json:"serviceCIDRs"`
	// NetworkNamespace is that of the node, for nsenter and nft.
	NetworkNamespace string `json:"networkNamespace"`
	// Processes are the process ids of the components that run.
	Processes map[string]int `json:"processes"`
	Logs      string         `json:"logs"`
}

// Ready reports whether all clusters are ready.
func (s Status) Ready() bool {
	for _, c := range s.Clusters {
		if !c.Ready {
			return false
		}
	}
	return true
}

// Status returns the current state of all clusters. A cluster that does not answer is not ready.
func (s *Sandbox) Status(ctx context.Context) Status {
	status := Status{
		Name: s.plan.name, Dir: s.plan.dir, Kubeconfig: s.Kubeconfig(), Family: s.state.Family, DataPlane: s.state.DataPlane,
		Image: s.state.Image, Workload: s.state.WorkloadImage,
		Clusters: make([]ClusterStatus, len(s.plan.clusters)), Faults: s.Faults(),
	}
	var wg sync.WaitGroup
	for i, c := range s.plan.clusters {
		wg.Go(func() {
			status.Clusters[i] = c.status(ctx)
			if cause := c.faultIn(status.Faults); cause != "" {
				status.Clusters[i].Ready, status.Clusters[i].Problem = false, cause
			}
		})
	}
	wg.Wait()
	return status
}

// faultIn returns which of the faults keeps a cluster from being ready, or nothing.
func (c cluster) faultIn(faults []fault.Fault) string {
	for _, f := range faults {
		if f.Cluster == c.name {
			return f.String()
		}
		if name := relayName(f.From); f.Kind == fault.Delay && f.To == c.name {
			if _, alive := c.running(name); !alive {
				return fmt.Sprintf("the relay that delays packets from %s is not running, so they are dropped: run seamark sandbox up", f.From)
			}
		}
	}
	return ""
}

func (c cluster) status(ctx context.Context) ClusterStatus {
	status := ClusterStatus{
		Name: c.name, Server: c.server(), Region: c.region, Zone: c.zone, NetworkNamespace: c.netns, Logs: c.path("logs"),
		NodeIPs: stringsOf(addrs(c.nodeIPs)), PodCIDRs: stringsOf(c.podCIDRs), ServiceCIDR: stringsOf(c.serviceCIDRs),
		Processes: map[string]int{},
	}
	var problem error
	for _, name := range componentNames {
		p, alive := c.running(name)
		if alive {
			status.Processes[name] = p.PID
		} else if problem == nil {
			problem = fmt.Errorf("%s is not running; see %s", name, c.log(name))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.inspect(ctx, &status); err != nil && problem == nil {
		problem = err
	}
	status.Ready = problem == nil
	if problem != nil {
		status.Problem = problem.Error()
	}
	return status
}

// inspect completes the status with what the API server knows.
func (c cluster) inspect(ctx context.Context, status *ClusterStatus) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, c.node(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the node from the API server: %w", err)
	}
	status.Version = node.Status.NodeInfo.KubeletVersion
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	status.Pods = len(pods.Items)
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			status.RunningPods++
		}
	}
	return nodeReady(node)
}

func stringsOf[T fmt.Stringer](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.String()
	}
	return list
}
