package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchFlags are the flags of commands that can repeat what they show.
type watchFlags struct {
	watch    bool
	interval time.Duration
}

func (f *watchFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "repeat until interrupted")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "with --watch: how often to repeat")
}

// run calls show once, or with --watch repeatedly: the output replaces the previous one on a
// terminal; in a pipe it is written when it differs from the previous one.
func (f watchFlags) run(ctx context.Context, s *session, show func(ctx context.Context, w io.Writer) error) error {
	if !f.watch {
		return show(ctx, s.Out)
	}
	if f.interval <= 0 {
		return usagef("--interval must be greater than zero")
	}
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	last := ""
	for {
		var text strings.Builder
		err := show(ctx, &text)
		if ctx.Err() != nil {
			return nil // --watch ends by interruption
		}
		if err != nil {
			return err
		}
		if s.onTerminal() {
			fmt.Fprint(s.Out, "\x1b[H\x1b[2J"+text.String())
		} else if text.String() != last {
			fmt.Fprint(s.Out, text.String()+"\n")
		}
		last = text.String()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
