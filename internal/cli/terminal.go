package cli

import (
	"os"

	"golang.org/x/term"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// onTerminal reports whether the output goes to a terminal.
func (s *session) onTerminal() bool { return isTerminal(s.Out) }

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// paint returns colours for a terminal, and plain text otherwise or where the user does not want
// colours (https://no-color.org).
func (s *session) paint() explain.Paint {
	if !s.onTerminal() || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return explain.Plain
	}
	return colours
}

func colours(severity explain.Severity, text string) string {
	code := map[explain.Severity]string{explain.Fail: "31", explain.Warn: "33", explain.Note: "36", "": "1", explain.Good: "32"}[severity]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
