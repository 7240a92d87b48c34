//go:build !linux

package controlplane

import "syscall"

// childAttributes put the child into a process group of its own. Only Linux can also tie its life to ours; elsewhere a
// caller that is killed leaves it running.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
