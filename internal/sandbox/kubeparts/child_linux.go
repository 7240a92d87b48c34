package kubeparts

import (
	"os/exec"
	"syscall"
	"time"
)

// endWithParent stops the Go tool when this process or the command's context ends. The tool gets
// SIGINT, which lets it remove its temporary files, and is killed ten seconds later.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // its compilers too
	cmd.WaitDelay = 10 * time.Second
}
