package controlplane

import "os/exec"

// StartChild starts a command that is killed when this process ends, in whatever way it ends. It is
// for processes beside a control plane, such as an agent. The caller must call Wait.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttributes()
	return sharedSpawner().start(cmd)
}
