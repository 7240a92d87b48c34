package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestWatchEnds(t *testing.T) {
	var out bytes.Buffer
	s := &session{IOStreams: genericiooptions.IOStreams{Out: &out}}
	ctx, cancel := context.WithCancel(context.Background())
	looks := 0
	err := watchFlags{watch: true, interval: time.Millisecond}.run(ctx, s, func(_ context.Context, w io.Writer) error {
		looks++
		if looks == 4 {
			cancel()
		}
		_, err := io.WriteString(w, map[bool]string{true: "first\n", false: "second\n"}[looks < 3])
		return err
	})
	if err != nil || out.String() != "first\n\nsecond\n\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	failure := errors.New("broken")
	err = watchFlags{watch: true, interval: time.Millisecond}.run(t.Context(), s, func(context.Context, io.Writer) error { return failure })
	if !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}
