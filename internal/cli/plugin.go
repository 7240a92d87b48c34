package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// nameAfter makes usage lines show what the user typed: kubectl runs a program called kubectl-mcs
// as `kubectl mcs`.
func nameAfter(root *cobra.Command, program string) {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	plugin, ok := strings.CutPrefix(name, "kubectl-")
	if !ok || plugin == "" {
		return
	}
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	// kubectl turns dashes in a plugin's words into underscores in its file name.
	typed := "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	root.Annotations[cobra.CommandDisplayNameAnnotation] = typed
	renameExamples(root, typed)
}

func renameExamples(cmd *cobra.Command, typed string) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  "+cmd.Root().Name()+" ", "  "+typed+" ")
	for _, child := range cmd.Commands() {
		renameExamples(child, typed)
	}
}
