package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// judgeProxies returns what the nodes of a cluster have programmed, in words, and adds which nodes
// lack something.
func (e *explainer) judgeProxies(c *Cluster) string {
	const component = "app.kubernetes.io/component=proxy"
	if c.Proxy == nil {
		return "not asked: no DaemonSet seamark-proxy"
	}
	if p := c.Proxy; p.Ready < p.Want {
		e.find(proxyNotReady, c.ID,
			fmt.Sprintf("seamark-proxy is ready on %d of %d nodes: on the others the clusterset IP does not work", p.Ready, p.Want),
			c.kubectl("-n seamark-system describe pods -l %s", component))
	}
	if len(c.Proxies) == 0 {
		return "not asked: " + c.ProxiesNotAsked
	}
	var behind, cutOff []string
	for _, node := range c.Proxies {
		if node.CutOff != "" {
			cutOff = append(cutOff, node.Node)
			continue
		}
		if node.Damage != "" {
			e.find(proxyDamaged, c.ID, fmt.Sprintf("table inet seamark of node %s: %s", node.Node, node.Damage),
				"run explain again: seamark-proxy restores the table now; if this comes back, find the program that changes it: "+
					"nft monitor on the node")
			continue
		}
		if node.Refused != "" {
			e.find(proxyRefused, c.ID, fmt.Sprintf("node %s: %s", node.Node, node.Refused),
				"correct the ports or endpoints of the Service where it is exported")
		}
		missing := slices.DeleteFunc(slices.Clone(c.Import.Spec.IPs), func(ip string) bool { return slices.Contains(node.VIPs, ip) })
		if len(missing) > 0 && node.Refused == "" {
			behind = append(behind, node.Node)
		}
	}
	if len(cutOff) > 0 {
		e.find(proxyCutOff, c.ID, "seamark-proxy cannot reach the API server from "+strings.Join(cutOff, ", ")+
			": changes of the service do not arrive there, and it is not known what is programmed",
			c.kubectl("-n seamark-system logs -l %s --tail 50", component)+", and check the network of these nodes")
	}
	if len(behind) > 0 {
		e.find(proxyBehind, c.ID, fmt.Sprintf("the import has the clusterset IP %s, but seamark-proxy has not programmed it on %s",
			strings.Join(c.Import.Spec.IPs, ", "), strings.Join(behind, ", ")),
			"if that lasts longer than some seconds: "+c.kubectl("-n seamark-system logs -l %s --tail 50", component))
	}
	return strings.Join(programs(c.Proxies), ", ") + notAsked(c.ProxiesNotAsked)
}

func notAsked(why string) string {
	if why == "" {
		return ""
	}
	return " (others not asked: " + why + ")"
}

// programs returns how many endpoints each port has. Nodes may differ, since each prefers endpoints
// near to it.
func programs(nodes []programmed.Service) []string {
	var order []string
	least, most := map[string]int{}, map[string]int{}
	for _, node := range nodes {
		for _, p := range node.Ports {
			name := p.Address + "/" + p.Protocol
			if _, seen := least[name]; !seen {
				order = append(order, name)
				least[name], most[name] = len(p.Endpoints), len(p.Endpoints)
			}
			least[name], most[name] = min(least[name], len(p.Endpoints)), max(most[name], len(p.Endpoints))
		}
	}
	if len(order) == 0 {
		return []string{"nothing programmed"}
	}
	out := make([]string, 0, len(order))
	for _, name := range order {
		count := fmt.Sprint(least[name])
		if least[name] != most[name] {
			count = fmt.Sprintf("%d to %d", least[name], most[name])
		}
		noun := "endpoints"
		if count == "1" {
			noun = "endpoint"
		}
		out = append(out, fmt.Sprintf("%s → %s %s", name, count, noun))
	}
	return out
}
