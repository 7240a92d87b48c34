// Package version is the version of this build.
package version

import (
	"runtime/debug"
	"strings"
	"sync"
)

// version is set by the linker (see the Makefile).
var version string

// String returns the version of this build: the one that the linker has set, or the tag that `go
// install …@v1.2.3` built, or "dev".
func String() string {
	if version != "" {
		return version
	}
	return installed()
}

var installed = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return dev
	}
	return tagOf(info.Main.Version)
})

// dev is the version of a build that has none.
const dev = "dev"

// tagOf returns the version of a main module if it is a tag, and dev otherwise. Go makes up a
// version for any other commit (v0.1.1-0.20261117095555-3976e20b3d1f), for which there is no image.
func tagOf(module string) string {
	if !strings.HasPrefix(module, "v") || strings.Contains(module, "+") {
		return dev
	}
	parts := strings.Split(module, "-")
	if n := len(parts); n >= 3 && len(parts[n-1]) == len("3976e20b3d1f") && strings.Trim(parts[n-1], "0123456789abcdef") == "" {
		return dev
	}
	return module
}
