//go:build linux

package cli

import (
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox"
)

// The kubeconfig is root's, so somebody who used sudo is told how to get one of their own.
func TestUseKubeconfig(t *testing.T) {
	for _, c := range []struct {
		name string
		sudo bool
		want string
	}{
		{sandbox.DefaultName, false, "export KUBECONFIG=/var/x/kubeconfig"},
		{sandbox.DefaultName, true, "(umask 077; sudo bin/seamark sandbox kubeconfig >sandbox.kubeconfig); export KUBECONFIG=$PWD/sandbox.kubeconfig"},
		{"mine", true, "(umask 077; sudo bin/seamark sandbox kubeconfig --name mine >sandbox.kubeconfig); export KUBECONFIG=$PWD/sandbox.kubeconfig"},
	} {
		if got := useKubeconfig(sandbox.Status{Name: c.name, Kubeconfig: "/var/x/kubeconfig"}, "bin/seamark", c.sudo); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
