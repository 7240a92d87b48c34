package transcript

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/seamark-dev/seamark/internal/cli"
)

// Result is what a command printed, and its exit code.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command of seamark with a kubeconfig and with input on its standard input. Spaces
// separate the arguments, so no argument can contain one.
func Run(ctx context.Context, kubeconfig, input, line string) Result {
	var out, errOut bytes.Buffer
	args := append(strings.Fields(line), "--kubeconfig", kubeconfig)
	code := cli.Run(ctx, args, strings.NewReader(input), &out, &errOut)
	return Result{Stdout: out.String(), Stderr: errOut.String(), Code: code}
}

// Lacks returns an error unless the command exited with a code and printed all the parts.
func (r Result) Lacks(code int, parts ...string) error {
	if r.Code != code {
		return fmt.Errorf("exit %d, want %d\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
	for _, part := range parts {
		if !strings.Contains(r.Stdout+r.Stderr, part) {
			return fmt.Errorf("the output lacks %q:\n%s%s", part, r.Stdout, r.Stderr)
		}
	}
	return nil
}
