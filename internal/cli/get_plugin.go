package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// nameAfter makes usage lines say what the user typed: kubectl runs a program called kubectl-mcs as `kubectl mcs`.
func nameAfter(root *cobra.Command, program string) {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	plugin, ok := strings.CutPrefix(name, "kubectl-")
	if !ok || plugin == "" {
		return
	}
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	// kubectl turns dashes of a plugin's words into underscores of its file name.
	root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl " + strings.ReplaceAll(plugin, "_", "-")
}
