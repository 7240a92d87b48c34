package corefile

import (
	"net/netip"
	"slices"
	"strings"
)

// Forwards returns the servers to which a Corefile forwards the names of a zone, without scheme and
// port. ok reports whether a server block or a forward directive covers the zone; the catch-all of
// the root zone does not count, since it sends all names that have no other rule upstream.
func Forwards(text, zone string) (servers []string, ok bool) {
	zone = zoneName(zone)
	block := mostSpecific(parse(text), zone)
	if block == nil {
		return nil, false
	}
	catchAll := block.covering(zone) == ""
	ok = !catchAll
	for _, d := range block.directives {
		if d.name() != "forward" || len(d.words) < 2 {
			continue
		}
		from := zoneName(d.words[1])
		if !covers(from, zone) || (catchAll && from == "") {
			continue
		}
		ok = true
		for _, to := range d.words[2:] {
			servers = append(servers, serverAddress(to))
		}
	}
	return servers, ok
}

// Answers reports whether the server that a Corefile configures answers the names of a zone itself:
// with the plugin of seamark-dns, or with the option multicluster of CoreDNS's kubernetes plugin.
func Answers(text, zone string) bool {
	zone = zoneName(zone)
	block := mostSpecific(parse(text), zone)
	if block == nil {
		return false
	}
	return slices.ContainsFunc(block.directives, func(d directive) bool {
		switch d.name() {
		case "clusterset":
			return len(d.words) == 1 || anyCovers(d.words[1:], zone)
		case "kubernetes":
			return slices.ContainsFunc(d.options, func(o directive) bool { return o.name() == "multicluster" && anyCovers(o.words[1:], zone) })
		}
		return false
	})
}

// serverBlock is a server block of a Corefile: the zones that it serves on the DNS port, and its
// plugins.
type serverBlock struct {
	zones      []string
	directives []directive
}

// covering returns the longest zone of the block that covers a zone; "" is also the root.
func (b *serverBlock) covering(zone string) string {
	longest := ""
	for _, z := range b.zones {
		if covers(z, zone) && len(z) > len(longest) {
			longest = z
		}
	}
	return longest
}

// directive is one line of a block, and the lines of the block that it opens.
type directive struct {
	words   []string
	options []directive
}

func (d directive) name() string { return d.words[0] }

// mostSpecific returns the server block that CoreDNS uses for a zone; nil when there is none.
func mostSpecific(blocks []serverBlock, zone string) *serverBlock {
	var best *serverBlock
	for i := range blocks {
		b := &blocks[i]
		if anyCovers(b.zones, zone) && (best == nil || len(b.covering(zone)) > len(best.covering(zone))) {
			best = b
		}
	}
	return best
}

// parse returns the server blocks of a Corefile, as far as its text can be read.
func parse(text string) []serverBlock {
	var (
		blocks []serverBlock
		keys   []string
		depth  int
	)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if depth == 0 {
			opens := slices.Index(words, "{")
			if opens < 0 {
				keys = append(keys, words...)
				continue
			}
			b := serverBlock{}
			for _, key := range append(keys, words[:opens]...) {
				b.zones = append(b.zones, keyZones(key)...)
			}
			blocks, keys, words, depth = append(blocks, b), nil, words[opens+1:], 1
		}
		depth = blocks[len(blocks)-1].add(words, depth)
	}
	return blocks
}

// add adds the words of a line at a depth of braces, and returns the depth after it.
func (b *serverBlock) add(words []string, depth int) int {
	var d directive
	for _, word := range words {
		switch word {
		case "{":
			b.keep(d, depth)
			d, depth = directive{}, depth+1
		case "}":
			b.keep(d, depth)
			d, depth = directive{}, depth-1
		default:
			d.words = append(d.words, strings.Trim(word, `"`))
		}
	}
	b.keep(d, depth)
	return max(0, depth)
}

// keep adds a directive at depth 1, and an option of the last directive below that. Plugins of
// CoreDNS that concern us nest no deeper.
func (b *serverBlock) keep(d directive, depth int) {
	last := len(b.directives) - 1
	switch {
	case len(d.words) == 0:
	case depth == 1:
		b.directives = append(b.directives, d)
	case depth == 2 && last >= 0:
		b.directives[last].options = append(b.directives[last].options, d)
	}
}

// zoneName returns a zone in lower case without the dot at its end: "" is the root.
func zoneName(zone string) string { return strings.ToLower(strings.TrimSuffix(zone, ".")) }

// covers reports whether a zone is another or one of its parents.
func covers(parent, zone string) bool {
	return parent == "" || parent == zone || strings.HasSuffix(zone, "."+parent)
}

func anyCovers(zones []string, zone string) bool {
	return slices.ContainsFunc(zones, func(z string) bool { return covers(zoneName(z), zone) })
}

// serverAddress returns the address of a target of the forward plugin, such as dns://10.96.0.53:53.
func serverAddress(target string) string {
	if _, rest, found := strings.Cut(target, "://"); found {
		target = rest
	}
	if addr, err := netip.ParseAddrPort(target); err == nil {
		return addr.Addr().String()
	}
	if addr, err := netip.ParseAddr(strings.Trim(target, "[]")); err == nil {
		return addr.String()
	}
	return target
}
