// Package version is the version of this build.
package version

// version is set by the linker (see the Makefile).
var version = "dev"

// String returns the version of this build, "dev" if it was built without the Makefile.
func String() string { return version }
