package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// look is how a command that looks at things prints: the formats of all commands, and wide.
type look struct {
	format
	wide bool
}

// Set takes wide too.
func (l *look) Set(text string) error {
	if text == "wide" {
		l.wide, l.format = true, forPeople
		return nil
	}
	if err := l.format.Set(text); err != nil {
		return fmt.Errorf("choose json, yaml or wide")
	}
	return nil
}

// String and Type are for the help.
func (l *look) String() string {
	if l.wide {
		return "wide"
	}
	return l.format.String()
}

// Type is shown in the help.
func (l *look) Type() string { return "json|yaml|wide" }

func addLook(cmd *cobra.Command, into *look) {
	cmd.Flags().VarP(into, "output", "o", "print as json or yaml, or with more columns (wide)")
}

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

// onTerminal tells whether people see the output as it is written.
func (s *session) onTerminal() bool { return isTerminal(s.Out) }

// isTerminal tells whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// paint is colours on a terminal, and nothing elsewhere or where the user does not want any (https://no-color.org).
func (s *session) paint() explain.Paint {
	if !s.onTerminal() || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return explain.Plain
	}
	return colours
}

func colours(severity explain.Severity, text string) string {
	code := map[explain.Severity]string{explain.Fail: "31", explain.Warn: "33", explain.Note: "36", "": "1", good: "32"}[severity]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// good is for what is as it should be.
const good explain.Severity = "good"

// writeTable writes rows below a head. Only the last cell of a row may be painted, or columns would not line up.
func writeTable(w io.Writer, head []string, rows [][]string) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // an error of w shows in the next write
}
