package explain

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

// answersItself finds a DNS server that needs nobody to forward to: one with our own plugin, or CoreDNS's kubernetes plugin with the option for it.
var answersItself = regexp.MustCompile(`(?m)^\s*(clusterset(\s|$)|multicluster\s)`)

// Forwarding tells what is wrong with the way a cluster's own DNS, configured by the text of a Corefile, sends names of the clusterset to the
// addresses of seamark-dns, and how to mend it. Both are empty when all is well.
func Forwarding(text string, addresses []string) (problem, fix string) {
	fix = "join again, which adds it (seamark join), or add it to ConfigMap kube-system/coredns by hand"
	if block, err := corefile.Block(corefile.Forward{Servers: addresses}); err == nil {
		fix += ":\n          " + strings.ReplaceAll(strings.TrimRight(block, "\n"), "\n", "\n          ")
	}
	ours, err := corefile.Has(text)
	switch {
	case answersItself.MatchString(text):
		return "", ""
	case errors.Is(err, corefile.ErrOpenBlock):
		return fmt.Sprintf("the Corefile of the cluster is damaged: %v", err), fix
	case !ours && !strings.Contains(text, objects.DefaultZone):
		return fmt.Sprintf("the cluster's DNS (ConfigMap kube-system/coredns) does not forward %s: pods cannot resolve names of the clusterset", objects.DefaultZone), fix
	case len(addresses) == 0:
		return fmt.Sprintf("%s is forwarded, but there is no Service seamark-dns to forward it to", objects.DefaultZone), "install seamark-dns: seamark join does"
	case !slices.ContainsFunc(addresses, func(a string) bool { return strings.Contains(text, a) }):
		return fmt.Sprintf("%s is forwarded somewhere else than to seamark-dns (%s)", objects.DefaultZone, strings.Join(addresses, ", ")), fix
	}
	return "", ""
}
