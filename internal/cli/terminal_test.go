package cli

import (
	"bytes"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

func TestColours(t *testing.T) {
	if got := colours(explain.Fail, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
	s := &session{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}}}
	if got := s.paint()(explain.Fail, "x"); got != "x" {
		t.Errorf("in a pipe: %q", got)
	}
}
