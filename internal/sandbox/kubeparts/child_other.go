//go:build !linux

package kubeparts

import "os/exec"

// endWithParent does nothing: only Linux can tie a child's life to its parent's. A build that outlives us fills Go's
// cache and its own temporary folder, and harms nothing.
func endWithParent(*exec.Cmd) {}
