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
		o := term.run("%s", command)
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

// normal replaces what differs between runs, and makes columns independent of it.
func normal(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}
