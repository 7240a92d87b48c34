// Package corefile adds the server blocks that forward a clusterset's names to seamark-dns to the
// text of a Corefile, and removes them again. It works on text: everything outside the block stays
// byte for byte as it was, including comments and blanks.
package corefile

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/internal/objects"
)

// The lines around the block. Seamark replaces everything between them; users who want other
// content there remove these lines first.
const (
	beginMark = "# BEGIN seamark: names of the clusterset (added by `seamark join`, taken out by `seamark leave`)"
	endMark   = "# END seamark"
	// The prefixes by which the lines are recognized. They stay the same if a later version changes
	// the rest.
	beginSign, endSign = "# BEGIN seamark", "# END seamark"
)

var (
	// ErrOpenBlock means that a user edited the lines around the block: one of them is missing or
	// there twice. The user must repair it, because the block's extent is unknown.
	ErrOpenBlock = errors.New("the lines `" + beginSign + "…` and `" + endSign + "` do not match: repair them or remove the block by hand")
	// ErrZoneTaken means that another server block answers the zone already. CoreDNS would not
	// start with two.
	ErrZoneTaken = errors.New("another server block has the zone already: remove it, or let it forward to seamark-dns")
)

// Forward is which names are forwarded, and where.
type Forward struct {
	// Zone is the zone of the clusterset, objects.DefaultZone if empty.
	Zone string
	// Reverse are the reverse zones to forward; see ReverseZones.
	Reverse []string
	// Servers are the addresses of seamark-dns, with a port unless it is 53.
	Servers []string
}

// zoneOptions are the plugins of the server block of the zone. An answer is kept as long as its
// TTL says, and never longer: 0 is the shortest time that the cache keeps an answer, and 3600 the
// longest TTL of seamark-dns. A denial is kept for a second, so that a new service has its name
// soon.
//
// All options here are known to CoreDNS since 1.6 (2019): with an unknown one it would not start.
const zoneOptions = `    errors
    cache {
        success 9984 3600 0
        denial 9984 1 0
    }
`

// Block returns the text of the server blocks with the lines around them: what Add inserts, and
// what users with another DNS server can add themselves. It fails if an address or a zone is
// invalid.
func Block(f Forward) (string, error) {
	if len(f.Servers) == 0 {
		return "", errors.New("no address of seamark-dns to forward to: is its Service there?")
	}
	for _, server := range f.Servers {
		if !isServer(server) {
			return "", fmt.Errorf("server %q: want an address, with a port unless it is 53", server)
		}
	}
	zone, err := serverKeys([]string{cmp.Or(f.Zone, objects.DefaultZone)})
	if err != nil {
		return "", err
	}
	forward := "    forward . " + strings.Join(f.Servers, " ") + "\n}\n"
	text := beginMark + "\n" + zone + " {\n" + zoneOptions + forward
	if len(f.Reverse) > 0 {
		reverse, err := serverKeys(f.Reverse)
		if err != nil {
			return "", err
		}
		text += reverse + " {\n    errors\n" + forward
	}
	return text + endMark + "\n", nil
}

// serverKeys returns the keys of a server block for zones, on the DNS port.
func serverKeys(zones []string) (string, error) {
	keys := make([]string, len(zones))
	for i, zone := range zones {
		zone = strings.ToLower(strings.TrimSuffix(zone, "."))
		if !validZone.MatchString(zone) {
			return "", fmt.Errorf("zone %q: want a name such as %s", zone, objects.DefaultZone)
		}
		keys[i] = zone + ":53"
	}
	return strings.Join(keys, " "), nil
}

var validZone = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

func isServer(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(text)
	return err == nil
}

// Add returns the Corefile with the block up to date: in its place, or at the end if there was
// none. A reverse zone that another server block has is left to that. Adding the same block again
// changes nothing. It fails with ErrOpenBlock and ErrZoneTaken, and as Block does.
func Add(text string, f Forward) (string, error) {
	before, after, found, err := cut(text)
	if err != nil {
		return "", err
	}
	others := zonesOf(before + "\n" + after)
	f.Reverse = slices.DeleteFunc(slices.Clone(f.Reverse), func(zone string) bool { return slices.Contains(others, zone) })
	block, err := Block(f)
	if err != nil {
		return "", err
	}
	if zone := zoneName(cmp.Or(f.Zone, objects.DefaultZone)); slices.Contains(others, zone) {
		return "", fmt.Errorf("zone %s: %w", zone, ErrZoneTaken)
	}
	if !found && before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n" // a Corefile without a last line end; Remove leaves the added one
	}
	return before + block + after, nil
}

// Remove returns the Corefile without the block, unchanged if it has none. It fails with
// ErrOpenBlock.
func Remove(text string) (string, error) {
	before, after, _, err := cut(text)
	return before + after, err
}

// Has reports whether the block is there. It fails with ErrOpenBlock.
func Has(text string) (bool, error) {
	_, _, found, err := cut(text)
	return found, err
}

// cut splits a Corefile at the block.
func cut(text string) (before, after string, found bool, err error) {
	lines := strings.SplitAfter(text, "\n")
	begin, end := -1, -1
	for i, line := range lines {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, beginSign):
			if begin >= 0 {
				return text, "", false, ErrOpenBlock
			}
			begin = i
		case strings.HasPrefix(line, endSign):
			if begin < 0 || end >= 0 {
				return text, "", false, ErrOpenBlock
			}
			end = i
		}
	}
	switch {
	case begin < 0:
		return text, "", false, nil
	case end < 0:
		return text, "", false, ErrOpenBlock
	}
	return strings.Join(lines[:begin], ""), strings.Join(lines[end+1:], ""), true, nil
}

// zonesOf returns the zones of all server blocks on the DNS port, without the dots at their ends.
func zonesOf(text string) (zones []string) {
	depth := 0
	var keys []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			switch {
			case word == "{":
				if depth == 0 {
					zones = append(zones, keys...)
					keys = nil
				}
				depth++
			case word == "}":
				depth--
			case depth == 0:
				keys = append(keys, keyZones(word)...)
			}
		}
	}
	return zones
}

// keyZones returns the zone of one key of a server block, such as dns://clusterset.local.:53. It
// returns nothing for another port and for protocols other than plain DNS.
func keyZones(key string) []string {
	key = strings.Trim(key, ",")
	if scheme, rest, found := strings.Cut(key, "://"); found {
		if scheme != "dns" {
			return nil
		}
		key = rest
	}
	zone, port, found := strings.Cut(key, ":")
	if found && port != "53" {
		return nil
	}
	return []string{strings.ToLower(strings.TrimSuffix(zone, "."))}
}
