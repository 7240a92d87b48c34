// Package version says which build this is.
package version

// version is set by the linker (see the Makefile).
var version = "dev"

// String is the version of this build, "dev" when it was built without the Makefile.
func String() string { return version }
