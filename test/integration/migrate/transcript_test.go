package migrate_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

// TestTranscript runs a move of two clusters as an operator does.
func TestTranscript(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "east", "west")
	ns := harness.Namespace(t, f.clusters[0].CP, f.clusters[1].CP)
	svc := exportWithLighthouse(t, f.clusters[0].Agent, fleet.NewService(ns, "web"), "10.1.0.1")
	configs := map[string]*rest.Config{}
	for _, c := range f.clusters {
		awaitLighthouseImport(t, c.Agent, ns, "web", "east")
		configs[c.ID] = c.CP.Config()
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*harness.Kubeconfig(configs, "default"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	transcript.Check(t, filepath.Join("testdata", "transcript.txt"), func(line string) transcript.Result {
		for _, c := range f.clusters {
			if line == "join --context "+c.ID { // the workloads need pods; the test runs the agent
				f.join(c)
				return transcript.Result{Stdout: "(joined)\n"}
			}
			if line == "leave --context "+c.ID {
				f.leave(c)
				return transcript.Result{Stdout: "(left)\n"}
			}
		}
		return transcript.Run(t.Context(), kubeconfig, "", line)
	},
		transcript.Replacement{Pattern: regexp.MustCompile(`(?m)^waiting until .*\n`), With: ""},
		transcript.Replacement{Pattern: regexp.MustCompile(regexp.QuoteMeta(ns)), With: "shop"},
		transcript.Replacement{Pattern: regexp.MustCompile(regexp.QuoteMeta(svc.Spec.ClusterIP)), With: "CLUSTERIP"},
	)
}
