//go:build linux

package clusterset_test

import (
	"flag"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/harness"
)

var floor = flag.Bool("failover.floor", false,
	"measure also how soon many services leave a lost cluster without Seamark; use it with -failover.alone")

// floorOfMany measures the least that a failover of many services takes where traffic follows their
// EndpointSlices. No agent runs, and nothing has to be found out: the slices of the cluster are
// deleted at once when it is cut off, by as many workers as an agent has.
func (s *suite) floorOfMany(target string, each []string) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig()},
		&clientcmd.ConfigOverrides{CurrentContext: s.importer}).ClientConfig()
	s.must(err)
	config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	endpoints := client.DiscoveryV1().EndpointSlices("shop")
	s.kubectl(s.importer, "-n", "seamark-system", "scale", "deployment/seamark-agent", "--replicas=0")
	s.eventually("no agent runs", timeout, func() error {
		if pods := s.kubectl(s.importer, "-n", "seamark-system", "get", "pods", "-o", "name"); strings.Contains(pods, "seamark-agent") {
			return fmt.Errorf("%s", pods)
		}
		return nil
	})
	s.renewClient()
	list, err := endpoints.List(s.Context(), metav1.ListOptions{LabelSelector: "multicluster.kubernetes.io/source-cluster=" + s.second})
	s.must(err)
	outcome := s.startLoad(target, warmUp+*loadTime, each...)
	cut := time.Now()
	s.must(s.Cut(s.Context(), fault.Path{From: s.second}))
	const workers = 16
	begin := time.Now()
	s.must(harness.Parallel(workers, len(list.Items), func(i int) error {
		return endpoints.Delete(s.Context(), list.Items[i].Name, metav1.DeleteOptions{})
	}))
	deleted := time.Since(begin)
	tally := outcome()
	s.Logf("floor, %s: %d slices are deleted within %s; 99 %% of the requests succeed %s after the first deletion; %d of %d failed", s.dataPlane,
		len(list.Items), deleted.Round(10*time.Millisecond), tally.Recovery(begin).Round(10*time.Millisecond), tally.Failed, tally.Requests)
	s.Logf("floor, %s: of those that begin in each second after the cut, so many failed: %v", s.dataPlane, bySecond(tally.Failures(cut)))
	s.heal()
	s.kubectl(s.importer, "-n", "seamark-system", "scale", "deployment/seamark-agent", "--replicas=2")
	s.must(s.RolledOut(s.Context(), s.importer, "seamark-system", "deployment/seamark-agent"))
	s.awaitReached(s.first, s.second)
}

// bySecond counts times by the second that they are in.
func bySecond(times []time.Duration) []int {
	var out []int
	for _, at := range times {
		second := max(0, int(at/time.Second))
		for len(out) <= second {
			out = append(out, 0)
		}
		out[second]++
	}
	return out
}
