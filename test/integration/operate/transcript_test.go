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

// What people see of a clusterset with one good service, one in conflict and one without a Service, in all commands that look: the commands of
// testdata/transcript.txt are run, and print what stands there.
func TestTranscript(t *testing.T) {
	b := freshBed(t)
	for _, m := range b.fleet.Members {
		m.Namespace(t, "shop")
		m.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.ID}, Spec: corev1.NodeSpec{
			PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}, // the same in both: doctor finds it
		}})
	}
	b.serve(b.east, "shop", "web")
	b.eventually("explain web -n shop --contexts east,west", "all is well")
	b.serve(b.east, "shop", "cart")
	b.eventually("explain cart -n shop --contexts east,west", "all is well")
	// The API keeps times in whole seconds, and the transcript tells which change was the last: it must not fall into the same second.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
	b.west.Serve(t, fleet.NewService("shop", "cart", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 8080)} }), "10.2.0.1")
	b.west.Export(t, "shop", "cart")
	b.explained("shop", "cart", "east,west", "port-conflict")
	b.east.Export(t, "shop", "ghost")
	b.explained("shop", "ghost", "east", "no-service")
	// What the agents tell about themselves comes within a second of their start; nodes that came later with the next.
	b.fleet.Stop()
	if err := b.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	b.consult("doctor", "address-ranges", "east and west", "fail")
	b.eventually("status --contexts east,west", "east", "dev", "alive")
	b.explained("shop", "cart", "east,west", "port-conflict")
	b.eventually("explain cart -n shop --contexts east,west", "imported", "east:2 west:1")

	transcript.Check(t, filepath.Join("testdata", "transcript.txt"), func(line string) transcript.Result {
		o := b.run("%s", line)
		return transcript.Result{Stdout: o.out, Stderr: o.err, Code: o.code}
	}, variableOutput...)
}

var variableOutput = []transcript.Replacement{
	{Pattern: regexp.MustCompile(`Kubernetes v[0-9.]+\S*`), With: "Kubernetes VERSION"},
	// Columns keep their place when a number gets a digit more.
	{Pattern: regexp.MustCompile(`(<?\d+[smh]+\d*[smh]? (ago|later)) *`), With: "AGE "},
	{Pattern: regexp.MustCompile(`(?m) +\d+[smh]\d*[smh]?$`), With: " AGE"},
	{Pattern: regexp.MustCompile(`(?m) {2,}\d+[smh]\d*[smh]?  +`), With: " AGE "},
	{Pattern: regexp.MustCompile(`10\.\d+\.\d+\.\d+( *)`), With: "CLUSTERIP "},
	{Pattern: regexp.MustCompile(` {2,}`), With: "  "},
}
