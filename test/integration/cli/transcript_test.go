package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/transcript"
)

// TestTranscript runs all commands as users do: what they print, what they refuse, and their exit
// codes.
func TestTranscript(t *testing.T) {
	env := newEnvironment(t)
	t.Cleanup(func() { env.removeBroker(objects.DefaultNamespace) })
	env.createNamespace("shop", "east")
	env.create("east",
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "far"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"},
		},
	)
	replacements := append([]transcript.Replacement{
		{Pattern: regexp.MustCompile(regexp.QuoteMeta(env.dir)), With: "DIR"},
	}, variableOutput...)
	transcript.Check(t, filepath.Join("testdata", "transcript.txt"), func(line string) transcript.Result {
		return env.run(strings.ReplaceAll(line, "DIR", env.dir))
	}, replacements...)
}

var variableOutput = []transcript.Replacement{
	{Pattern: regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), With: "UID"},
	{Pattern: regexp.MustCompile(`go1\.[0-9.]+[^)\s"]*`), With: "GO"},
	{Pattern: regexp.MustCompile(`\d+ objects: `), With: "N objects: "},
	{Pattern: regexp.MustCompile(`\d+ (created|updated)`), With: "N $1"},
}
