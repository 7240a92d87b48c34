package controlplane

import "syscall"

// childAttributes make the kernel kill the child when this process ends, in whatever way, and put it into a process group
// of its own, so that Ctrl-C in the terminal reaches only us and we decide the order of ending.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
