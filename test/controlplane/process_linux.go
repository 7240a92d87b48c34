package controlplane

import "syscall"

// childAttributes make the kernel kill the child when this process ends, and put the child into a
// process group of its own, so that Ctrl-C in the terminal reaches only this process, which stops
// its children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
