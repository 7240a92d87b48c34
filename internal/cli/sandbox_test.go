//go:build linux

package cli

import (
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox"
)

// The kubeconfig belongs to root: a user of sudo needs the command that makes one of their own.
func TestUseKubeconfig(t *testing.T) {
	const copied = " >sandbox.kubeconfig); export KUBECONFIG=$PWD/sandbox.kubeconfig"
	for _, c := range []struct {
		name string
		sudo bool
		want string
	}{
		{sandbox.DefaultName, false, "export KUBECONFIG=/var/x/kubeconfig"},
		{sandbox.DefaultName, true, "(umask 077; sudo bin/seamark sandbox kubeconfig" + copied},
		{"second", true, "(umask 077; sudo bin/seamark sandbox kubeconfig --name second" + copied},
	} {
		if got := useKubeconfig(sandbox.Status{Name: c.name, Kubeconfig: "/var/x/kubeconfig"}, "bin/seamark", c.sudo); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
