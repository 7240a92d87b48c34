package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Platform is a target of the compiler, in the words of Go.
type Platform struct {
	OS, Arch string
}

// String returns the platform as Go and registries write it: linux/amd64.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Compile builds programs of the checkout at root for a platform into the folder dir. The programs
// are static and know their version. The same sources, Go version and version string give the same
// bytes, wherever root is. One call of the Go tool builds them all, so packages that they share are
// compiled once. Compile fails when the Go tool is missing, when a program does not compile (the
// error has the compiler's output), and when ctx ends.
func Compile(ctx context.Context, root, version string, p Platform, dir string, programs ...string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X github.com/seamark-dev/seamark/internal/daemon/version.version=" + version,
		"-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// GOFLAGS, GOEXPERIMENT and the levels of architectures of the caller would change the result.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch,
		"GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=", "GOARM64=", "GOFIPS140=", "GOWORK=off")
	output, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("the Go tool is needed to build programs; install Go and put it on the PATH: %w", err)
	case err != nil:
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
