package operate_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/test/fleet"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

	golden := filepath.Join("testdata", "transcript.txt")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ seamark ")
		if !ok {
			continue
		}
		o := b.run("%s", command)
		fmt.Fprintf(&got, "$ seamark %s\n%s%s", command, normal(o.out), normal(o.err))
		if o.code != 0 {
			fmt.Fprintf(&got, "[exit %d]\n", o.code)
		}
		got.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("run with -update if the new output is right (-want +got):\n%s", diff)
	}
}

var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://SERVER"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`Kubernetes v[0-9.]+\S*`), "Kubernetes VERSION"},
	// Columns keep their place when a number gets a digit more.
	{regexp.MustCompile(`(<?\d+[smh]+\d*[smh]? (ago|later)) *`), "AGE "},
	{regexp.MustCompile(`(?m) +\d+[smh]\d*[smh]?$`), " AGE"},
	{regexp.MustCompile(`(?m) {2,}\d+[smh]\d*[smh]?  +`), " AGE "},
	{regexp.MustCompile(`10\.\d+\.\d+\.\d+( *)`), "CLUSTERIP "},
	{regexp.MustCompile(` {2,}`), "  "},
}

// normal replaces what differs from run to run, and makes columns independent of it.
func normal(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}
