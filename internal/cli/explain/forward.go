package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
)

// Forwarding returns what is wrong with the way a cluster's own DNS, configured by the text of a
// Corefile, sends names of the clusterset's zone to the addresses of seamark-dns, and how to repair
// it. Both are empty when nothing is wrong.
func Forwarding(text, zone string, addresses []string) (problem, fix string) {
	fix = "join again, which adds it (seamark join), or add it to ConfigMap kube-system/coredns by hand"
	if block, err := corefile.Block(corefile.Forward{Zone: zone, Servers: addresses}); err == nil {
		fix += ":\n          " + strings.ReplaceAll(strings.TrimRight(block, "\n"), "\n", "\n          ")
	}
	_, err := corefile.Has(text)
	servers, forwarded := corefile.Forwards(text, zone)
	switch {
	case corefile.Answers(text, zone):
		return "", ""
	case errors.Is(err, corefile.ErrOpenBlock):
		return fmt.Sprintf("the Corefile of the cluster is damaged: %v", err), fix
	case !forwarded:
		return fmt.Sprintf("the cluster's DNS (ConfigMap kube-system/coredns) does not forward %s: "+
			"pods cannot resolve names of the clusterset", zone), fix
	case len(addresses) == 0:
		return fmt.Sprintf("%s is forwarded, but there is no Service seamark-dns to forward it to", zone),
			"install seamark-dns: seamark join does"
	case !slices.ContainsFunc(addresses, func(a string) bool { return slices.Contains(servers, a) }):
		return fmt.Sprintf("%s is forwarded to %s, not to seamark-dns (%s)",
			zone, cmp.Or(strings.Join(servers, ", "), "no server"), strings.Join(addresses, ", ")), fix
	}
	return "", ""
}
