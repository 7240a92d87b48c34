package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

// As a plugin, the program is called what the user typed.
func TestNameAfter(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/bin/kubectl-mcs": "kubectl mcs sub", "kubectl-mcs.exe": "kubectl mcs sub",
		"seamark": "seamark sub", "kubectl-": "seamark sub", "kubectl-multi_cluster": "kubectl multi-cluster sub",
	} {
		root := &cobra.Command{Use: "seamark"}
		sub := &cobra.Command{Use: "sub", Example: "  seamark sub x", Run: func(*cobra.Command, []string) {}}
		root.AddCommand(sub)
		nameAfter(root, program)
		if got := sub.CommandPath(); got != want || sub.Example != "  "+want+" x" {
			t.Errorf("%s: %q, %q", program, got, sub.Example)
		}
	}
}
