package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Content is what the kernel's table holds.
type Content struct {
	// Damage is why the table must be replaced: it does not exist, or its sets, chains or rules are
	// not those of this program. Without it the rest is set.
	Damage   string
	Elements []ruleset.Element
	Classes  []ruleset.Class
}

// Read returns what the table holds.
func (t *Table) Read() (Content, error) {
	conn, err := t.connect()
	if err != nil {
		return Content{}, fmt.Errorf("open netlink: %w", err)
	}
	content, err := t.readRules(conn)
	if err != nil || content.Damage != "" {
		return content, err
	}
	for _, f := range t.layout.families {
		for kind, set := range f.sets {
			found, err := conn.GetSetElements(set)
			if err != nil {
				return Content{}, fmt.Errorf("read set %s: %w", set.Name, err)
			}
			for _, e := range found {
				content.Elements = append(content.Elements, ruleset.Element{
					Set: ruleset.Set{Kind: ruleset.Kind(kind), IPv6: f.ipv6}, Key: string(e.Key), Value: string(e.Val) + e.Comment,
				})
			}
		}
	}
	return content, nil
}

// CheckRules returns how the table differs from one that this program wrote, apart from the
// services in it. It is fast for any number of services.
func (t *Table) CheckRules() (damage string, err error) {
	conn, err := t.connect()
	if err != nil {
		return "", fmt.Errorf("open netlink: %w", err)
	}
	content, err := t.readRules(conn)
	return content.Damage, err
}

// readRules reads the table without the elements of services.
func (t *Table) readRules(conn *nftables.Conn) (Content, error) {
	damaged := func(format string, args ...any) (Content, error) {
		return Content{Damage: fmt.Sprintf(format, args...)}, nil
	}
	table, err := conn.ListTableOfFamily(TableName, t.layout.table.Family)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return damaged("there is no table inet %s", TableName)
	case err != nil:
		return Content{}, fmt.Errorf("read table inet %s: %w", TableName, err)
	case table.Flags != 0:
		return damaged("table inet %s has flags: %#x", TableName, table.Flags)
	}
	chains, err := t.readChains(conn)
	if err != nil {
		return Content{}, err
	}
	if _, ok := chains[t.layout.fingerprintChain.Name]; !ok {
		return damaged("another version wrote table inet %s", TableName)
	}
	if missing, err := t.missingSet(conn); err != nil || missing != "" {
		return Content{Damage: missing}, err
	}
	classes, err := t.readClasses(conn)
	if err != nil {
		return Content{}, err
	}
	want := t.expectedChains(slices.Collect(maps.Keys(classes)))
	have, err := t.listRules()
	if err != nil {
		return Content{}, fmt.Errorf("list rules: %w", err)
	}
	for name, comments := range want {
		if base, ok := chains[name]; !ok || !base {
			return damaged("chain %s is missing or changed", name)
		}
		if !slices.Equal(have[name], comments) {
			return damaged("chain %s has other rules", name)
		}
	}
	for name := range chains {
		if _, ok := want[name]; !ok {
			return damaged("chain %s is not in use", name)
		}
	}
	var content Content
	for class, chain := range classes {
		if chain != t.layout.classChain(class).Name {
			return damaged("an element of the classes leads to chain %s", chain)
		}
		content.Classes = append(content.Classes, class)
	}
	return content, nil
}

// readChains returns the table's chains, and whether each is as this program creates it, apart from
// its rules.
func (t *Table) readChains(conn *nftables.Conn) (map[string]bool, error) {
	listed, err := conn.ListChainsOfTableFamily(t.layout.table.Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	want := map[string]*nftables.Chain{}
	for _, c := range t.layout.chains {
		want[c.Name] = c
	}
	out := map[string]bool{}
	for _, c := range listed {
		if c.Table.Name != TableName {
			continue
		}
		w := want[c.Name]
		switch {
		case w == nil || w.Hooknum == nil:
			out[c.Name] = c.Hooknum == nil
		default:
			out[c.Name] = c.Hooknum != nil && *c.Hooknum == *w.Hooknum && c.Priority != nil && *c.Priority == *w.Priority && c.Type == w.Type &&
				(c.Policy == nil || *c.Policy == nftables.ChainPolicyAccept)
		}
	}
	return out, nil
}

// missingSet returns which set does not exist or is of another kind. A set that no rule uses can be
// deleted by other programs.
func (t *Table) missingSet(conn *nftables.Conn) (string, error) {
	listed, err := conn.GetSets(t.layout.table)
	if err != nil {
		return "", fmt.Errorf("list sets: %w", err)
	}
	have := map[string]*nftables.Set{}
	for _, s := range listed {
		have[s.Name] = s
	}
	for _, f := range t.layout.families {
		for _, want := range f.allSets() {
			s := have[want.Name]
			if s == nil || s.IsMap != want.IsMap || s.HasTimeout != want.HasTimeout {
				return fmt.Sprintf("set %s is missing or changed", want.Name), nil
			}
		}
	}
	return "", nil
}

// readClasses returns the classes of the table with the chain of each.
func (t *Table) readClasses(conn *nftables.Conn) (map[ruleset.Class]string, error) {
	out := map[ruleset.Class]string{}
	for _, f := range t.layout.families {
		found, err := conn.GetSetElements(f.classes)
		if err != nil {
			return nil, fmt.Errorf("read map %s: %w", f.classes.Name, err)
		}
		for _, e := range found {
			class, _ := ruleset.ParseClass(f.ipv6, string(e.Key)) // the kernel holds only keys of the right length
			eachAttribute(e.Val, func(kind uint16, value []byte) {
				if kind == unix.NFTA_VERDICT_CHAIN {
					out[class] = unix.ByteSliceToString(value)
				}
			})
		}
	}
	return out, nil
}

// expectedChains returns the comments of the rules of every chain, given the classes in use.
func (t *Table) expectedChains(classes []ruleset.Class) map[string][]string {
	out := map[string][]string{t.layout.fingerprintChain.Name: nil}
	add := func(r *nftables.Rule) {
		comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		out[r.Chain.Name] = append(out[r.Chain.Name], comment)
	}
	for _, r := range t.layout.rules {
		add(r)
	}
	for _, class := range classes {
		for _, r := range t.layout.classRules(class) {
			add(r)
		}
	}
	return out
}

// listRules returns the comments of the rules of each chain, in their order. The library would
// parse the rules, and cannot parse some of them.
func (t *Table) listRules() (map[string][]string, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: t.netns})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(TableName + "\x00")}})
	if err != nil {
		return nil, err
	}
	header := []byte{byte(t.layout.table.Family), unix.NFNETLINK_V0, 0, 0}
	messages, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
		Data:   append(header, attributes...),
	})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, m := range messages {
		var chain, comment string
		eachAttribute(m.Data[min(genericHeader, len(m.Data)):], func(kind uint16, value []byte) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				chain = unix.ByteSliceToString(value)
			case unix.NFTA_RULE_USERDATA:
				comment, _ = userdata.GetString(value, userdata.TypeComment)
			}
		})
		if chain != "" {
			out[chain] = append(out[chain], comment)
		}
	}
	return out, nil
}
