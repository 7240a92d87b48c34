package operate_test

import (
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/transcript"
)

// The output of all commands that inspect a clusterset with one good service, one in conflict and
// one without a Service: the commands of testdata/transcript.txt are run, and print what follows
// them.
func TestTranscript(t *testing.T) {
	term := freshClusterset(t)
	for _, m := range term.fleet.Members {
		m.Namespace(t, "shop")
		m.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.ID}, Spec: corev1.NodeSpec{
			PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}, // the same in both: doctor finds it
		}})
	}
	term.serve(term.east, "shop", "web")
	term.healthy("shop", "web", "east,west")
	term.serve(term.east, "shop", "cart")
	term.healthy("shop", "cart", "east,west")
	// The API keeps times in whole seconds, and the transcript shows the last change: it must not
	// happen in the same second as the one before.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
	otherPort := func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 8080)} }
	term.west.Serve(t, fleet.NewService("shop", "cart", otherPort), "10.2.0.1")
	term.west.Export(t, "shop", "cart")
	term.explained("shop", "cart", "east,west", "port-conflict")
	term.east.Export(t, "shop", "ghost")
	term.explained("shop", "ghost", "east", "no-service")
	// Agents publish their status, with the ranges of their nodes, when they start.
	term.fleet.Stop()
	if err := term.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	term.diagnosed("doctor", "address-ranges", "east and west", "fail")
	term.eventually("status --contexts east,west", "east", "dev", "alive")
	term.explained("shop", "cart", "east,west", "port-conflict")
	term.eventually("explain cart -n shop --contexts east,west", "imported", "east:2 west:1")

	transcript.Check(t, filepath.Join("testdata", "transcript.txt"), func(line string) transcript.Result {
		return term.run("%s", line)
	}, variableOutput...)
}

var variableOutput = []transcript.Replacement{
	{Pattern: regexp.MustCompile(`Kubernetes v[0-9.]+\S*`), With: "Kubernetes VERSION"},
	// Columns keep their place when a number gets a digit more.
	{Pattern: regexp.MustCompile(`(<?\d+[smh]+\d*[smh]? (ago|later)) *`), With: "AGE "},
	{Pattern: regexp.MustCompile(`(?m) +\d+[smh]\d*[smh]?$`), With: " AGE"},
	{Pattern: regexp.MustCompile(`(?m) {2,}\d+[smh]\d*[smh]?  +`), With: " AGE "},
	{Pattern: regexp.MustCompile(`10\.\d+\.\d+\.\d+( *)`), With: "CLUSTERIP "},
	{Pattern: regexp.MustCompile(`(?m)243\.0\.\d+\.\d+([^/\d]|$)`), With: "CLUSTERSETIP$1"},
	{Pattern: regexp.MustCompile(` {2,}`), With: "  "},
}
