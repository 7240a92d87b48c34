package explain

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Each reason to wait is put into words.
func TestEveryWaitReasonHasAText(t *testing.T) {
	reasons := map[objects.WaitReason]bool{}
	for name, value := range constantsOf(t, filepath.Join("..", "..", "objects", "waiting.go")) {
		if strings.HasPrefix(name, "WaitFor") {
			reasons[objects.WaitReason(value)] = true
		}
	}
	for reason := range reasons {
		if waitTexts[reason] == "" {
			t.Errorf("%s has no text", reason)
		}
	}
	for reason := range waitTexts {
		if !reasons[reason] {
			t.Errorf("there is no reason %s", reason)
		}
	}
}

// What the agent waits for stands in the findings about what it has not written, as text and JSON,
// with the time corrected by the cluster's clock.
func TestFindingsShowWhatTheAgentWaitsFor(t *testing.T) {
	in := readInput(t, "all-well")
	west := &in.Clusters[1]
	west.Import = nil
	west.ClockAhead = metav1.Duration{Duration: time.Hour}
	west.Waiting = []objects.Waiting{
		{Reconciler: "export", Reason: objects.WaitForBroker, Since: in.Now.Time},
		{Reconciler: "import", Reason: objects.WaitForRecords, Since: in.Now.Add(time.Hour - 20*time.Second)},
		{Reconciler: "import", Reason: "of-another-version", Since: in.Now.Add(time.Hour - 2*time.Minute)},
	}
	report := Explain(in)
	got := codesOf(report)["import-missing"].Waiting
	if len(got) != 2 || got[0].Reason != objects.WaitForRecords || got[0].Text != waitTexts[objects.WaitForRecords] ||
		!got[0].Since.Equal(in.Now.Add(-20*time.Second)) || got[1].Text != "of-another-version" {
		t.Errorf("%+v", got)
	}
	var text bytes.Buffer
	Write(&text, report, in.Now.Time, Plain)
	if want := "\n  wait import, for 20s: records disappeared while the watch was interrupted"; !strings.Contains(text.String(), want) {
		t.Errorf("the text lacks %q:\n%s", want, &text)
	}
	encoded, err := json.Marshal(report)
	want := `"waiting":[{"reconciler":"import","reason":"records-lost","text":"records disappeared`
	if err != nil || !strings.Contains(string(encoded), want) {
		t.Errorf("%v: %s", err, encoded)
	}
}
