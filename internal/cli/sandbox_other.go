//go:build !linux

package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func newSandbox(*session) *cobra.Command {
	return &cobra.Command{
		Use:                "sandbox",
		Short:              "Run real clusters on this machine (Linux only)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a sandbox needs network namespaces and containers of the Linux kernel: run it on a Linux machine")
		},
	}
}
