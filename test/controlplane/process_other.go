//go:build !linux

package controlplane

import "syscall"

// childAttributes put the child into a process group of its own. Only on Linux can the kernel also
// kill it when this process is killed; elsewhere it keeps running then.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
