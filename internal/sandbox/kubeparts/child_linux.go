package kubeparts

import (
	"os/exec"
	"syscall"
	"time"
)

// endWithParent makes the Go tool end with this process, and with its context. It is asked by SIGINT, which lets it remove
// its temporary files; one that does not listen is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // its compilers too
	cmd.WaitDelay = 10 * time.Second
}
