package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestTranscript is all commands as people see them: what they print, what they refuse, and with which code they exit.
func TestTranscript(t *testing.T) {
	b := newBed(t)
	t.Cleanup(func() { b.dismantle(objects.DefaultNamespace) })
	b.namespace("shop", "east")
	b.create("east",
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "far"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}},
	)
	text, err := os.ReadFile(filepath.Join("testdata", "transcript.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ seamark ")
		if comment, isComment := strings.CutPrefix(line, "# "); isComment {
			fmt.Fprintf(&got, "# %s", comment)
		}
		if !ok {
			continue
		}
		o := b.run(strings.ReplaceAll(command, "DIR", b.dir))
		fmt.Fprintf(&got, "$ seamark %s\n%s%s", command, b.normal(o.out), b.normal(o.err))
		if o.code != 0 {
			fmt.Fprintf(&got, "[exit %d]\n", o.code)
		}
		got.WriteString("\n")
	}
	golden := filepath.Join("testdata", "transcript.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got.String(), "\n")); diff != "" && !*update {
		t.Errorf("run with -update if the new output is right (-want +got):\n%s", diff)
	}
}

var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://SERVER"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`go1\.[0-9.]+[^)\s"]*`), "GO"},
	{regexp.MustCompile(`\d+ objects: `), "N objects: "},
	{regexp.MustCompile(`\d+ (created|updated)`), "N $1"},
}

// normal replaces what differs from run to run.
func (b *bed) normal(text string) string {
	text = strings.ReplaceAll(text, b.dir, "DIR")
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}
