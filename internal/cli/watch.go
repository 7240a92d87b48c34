package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchFlags are those of commands that can go on looking.
type watchFlags struct {
	watch    bool
	interval time.Duration
}

func (f *watchFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on looking, until interrupted")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "with --watch: how often to look")
}

// run shows once, or again and again: on a terminal in place of what was there, in a pipe whenever something changed.
func (f watchFlags) run(ctx context.Context, s *session, show func(ctx context.Context, w io.Writer) error) error {
	if !f.watch {
		return show(ctx, s.Out)
	}
	if f.interval <= 0 {
		return usagef("--interval must be longer than nothing")
	}
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	last := ""
	for {
		var text strings.Builder
		err := show(ctx, &text)
		if ctx.Err() != nil {
			return nil // interrupted: that is how it ends
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
