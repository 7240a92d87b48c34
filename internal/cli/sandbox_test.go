//go:build linux

package cli

import (
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
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

// TestFaultMessages has what the commands of faults say about the path, and how they are undone.
func TestFaultMessages(t *testing.T) {
	for _, c := range []struct {
		path             fault.Path
		sandbox          string
		packets, healing string
	}{
		{
			fault.Path{From: "west", To: "north"}, sandbox.DefaultName,
			"packets between west and north", "seamark sandbox fault heal west north --kind loss",
		},
		{
			fault.Path{From: "west", To: "north", OneWay: true}, "second",
			"packets from west to north", "seamark sandbox fault heal west north --kind loss --name second",
		},
		{fault.Path{From: "west"}, sandbox.DefaultName, "packets between west and all other clusters", "seamark sandbox fault heal west --kind loss"},
		{
			fault.Path{From: "west", OneWay: true}, sandbox.DefaultName,
			"packets from west to all other clusters", "seamark sandbox fault heal west --kind loss",
		},
	} {
		if got := packets(c.path); got != c.packets {
			t.Errorf("packets: %s, want %s", got, c.packets)
		}
		if got := healCommand(c.sandbox, healPath(c.path, fault.Loss)); got != c.healing {
			t.Errorf("heal: %s, want %s", got, c.healing)
		}
	}
}

// TestFaultPaths checks which path the arguments and --one-way name.
func TestFaultPaths(t *testing.T) {
	for _, c := range []struct {
		clusters []string
		oneWay   bool
		want     fault.Path
	}{
		{[]string{"west"}, false, fault.Path{From: "west"}},
		{[]string{"west", "north"}, false, fault.Path{From: "west", To: "north"}},
		{[]string{"west", "north"}, true, fault.Path{From: "west", To: "north", OneWay: true}},
	} {
		if got := pathOf(c.clusters, c.oneWay); got != c.want {
			t.Errorf("%v, one way %v: %+v", c.clusters, c.oneWay, got)
		}
	}
}

func TestFaultLists(t *testing.T) {
	cut, stopped := fault.Fault{Kind: fault.Cut, From: "east", To: "west"}, fault.Fault{Kind: fault.ControlPlane, Cluster: "north"}
	var list, none, healed, partly, other, nothing strings.Builder
	printFaults(&list, sandbox.DefaultName, []fault.Fault{cut, stopped})
	printFaults(&none, "second", nil)
	printHealed(&healed, []fault.Fault{cut, stopped}, nil)
	printHealed(&partly, []fault.Fault{cut}, []fault.Fault{stopped})
	printHealed(&other, nil, []fault.Fault{stopped})
	printHealed(&nothing, nil, nil)
	for _, c := range []struct{ got, want string }{
		{list.String(), "FAULT           EFFECT\n" +
			"cut             packets from east to west are dropped\n" +
			"control-plane   the control plane of north is stopped, its pods run\n" +
			"Undo: seamark sandbox fault heal\n"},
		{none.String(), "Sandbox second has no faults.\n"},
		{healed.String(), "Healed: cut from east to west\n" +
			"Healed: control-plane of north\n" +
			"The sandbox has no faults.\n"},
		{partly.String(), "Healed: cut from east to west\n1 fault left: seamark sandbox fault list\n"},
		{other.String(), "There is no such fault; 1 fault of another kind or place: seamark sandbox fault list\n"},
		{nothing.String(), "There are no faults: nothing to do.\n"},
	} {
		if c.got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", c.got, c.want)
		}
	}
}
