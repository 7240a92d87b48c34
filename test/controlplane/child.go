package controlplane

import "os/exec"

// StartChild starts a command that ends with this process, in whatever way this process ends. It is for what runs beside a
// control plane, such as an agent. The caller waits for it.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttributes()
	return sharedSpawner().start(cmd)
}
