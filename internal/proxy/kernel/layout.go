package kernel

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// TableName is the name of Seamark's table, in family inet.
const TableName = "seamark"

// Priorities just before those of kube-proxy, which are the usual ones: the first translation of a
// connection wins, and the two have different addresses.
const (
	priorityDNAT   = -110
	prioritySNAT   = 90
	priorityFilter = -50 // after translation, before the usual firewalls
)

// affinitySize bounds the memory that clients can use: about 100 bytes for each client of each
// service port with affinity. If the map is full, a client is served without affinity.
const affinitySize = 1 << 18

// family holds one address family's sets.
type family struct {
	ipv6    bool
	suffix  string // of the names
	proto   byte   // NFPROTO
	width   uint32 // of an address, in registers
	addr    nftables.SetDatatype
	saddr   uint32 // offsets in the network header
	daddr   uint32
	sets    [ruleset.Kinds]*nftables.Set
	classes *nftables.Set // class → chain
	clients *nftables.Set // client and frontend → number of an endpoint; the kernel fills it
}

// layout is the table without services.
type layout struct {
	table            *nftables.Table
	families         [2]*family
	chains           []*nftables.Chain
	rules            []*nftables.Rule
	fingerprintChain *nftables.Chain
}

func newLayout(masquerade Masquerade, ranges []netip.Prefix) *layout {
	l := &layout{table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}}
	l.families[0] = &family{suffix: "4", proto: unix.NFPROTO_IPV4, width: 1, addr: nftables.TypeIPAddr, saddr: 12, daddr: 16}
	l.families[1] = &family{ipv6: true, suffix: "6", proto: unix.NFPROTO_IPV6, width: 4, addr: nftables.TypeIP6Addr, saddr: 8, daddr: 24}
	for _, f := range l.families {
		f.declareSets(l.table)
	}
	l.addChains(masquerade, ranges)
	l.fingerprintChain = &nftables.Chain{Name: "layout-" + l.fingerprint(), Table: l.table}
	return l
}

// fingerprint returns a hash of the layout. The table carries it in the name of an empty chain, so
// that another version of this program replaces a table with other rules.
func (l *layout) fingerprint() string {
	sum := sha256.New()
	rules := slices.Clone(l.rules)
	for _, f := range l.families {
		for _, s := range f.allSets() {
			fmt.Fprintf(sum, "%s %+v %+v %d;", s.Name, s.KeyType, s.DataType, s.Size)
		}
		for _, affinity := range []uint32{0, 1} {
			rules = append(rules, l.classRules(ruleset.Class{IPv6: f.ipv6, Count: 1, Affinity: affinity})...)
		}
	}
	for _, r := range rules {
		fmt.Fprintf(sum, "%s %s;", r.Chain.Name, r.UserData)
	}
	for _, c := range l.chains {
		fmt.Fprintf(sum, "%s;", c.Name)
		if c.Hooknum != nil {
			fmt.Fprintf(sum, "%d %d;", *c.Hooknum, *c.Priority)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6])
}

func (l *layout) family(ipv6 bool) *family {
	if ipv6 {
		return l.families[1]
	}
	return l.families[0]
}

// declareSets declares the family's sets. Types matter only to users who list the table.
func (f *family) declareSets(table *nftables.Table) {
	concat := nftables.MustConcatSetType
	proto, port, number := nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark
	endpoint := concat(f.addr, port)
	set := func(name string, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: table, Name: name + f.suffix, KeyType: key, Concatenation: strings.Contains(key.Name, " . ")}
	}
	asMap := func(s *nftables.Set, data nftables.SetDatatype) *nftables.Set {
		s.IsMap, s.DataType = true, data
		return s
	}
	f.sets[ruleset.VIPs] = set("vips", f.addr)
	f.sets[ruleset.Services] = asMap(set("services", concat(f.addr, proto, port)), number)
	f.sets[ruleset.Endpoints] = asMap(set("endpoints", concat(f.addr, proto, port, number)), endpoint)
	f.sets[ruleset.Slots] = asMap(set("slots", concat(f.addr, proto, port, number)), number)
	f.sets[ruleset.Members] = asMap(set("members", concat(f.addr, proto, port, number)), endpoint)
	f.sets[ruleset.Hairpin] = set("hairpin", concat(f.addr, f.addr))
	f.sets[ruleset.Silent] = set("silent", concat(f.addr, proto, port))
	f.classes = asMap(set("classes", number), nftables.TypeVerdict)
	f.clients = asMap(set("clients", concat(f.addr, f.addr, proto, port)), number)
	f.clients.Dynamic, f.clients.HasTimeout, f.clients.Size = true, true, affinitySize
}

func (f *family) allSets() []*nftables.Set {
	return append(f.sets[:], f.classes, f.clients)
}

// addChains adds the chains that do not depend on services, and their rules. The package
// documentation shows a packet's path through them.
func (l *layout) addChains(masquerade Masquerade, ranges []netip.Prefix) {
	add := func(c *nftables.Chain) *nftables.Chain {
		c.Table = l.table
		l.chains = append(l.chains, c)
		return c
	}
	base := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return add(&nftables.Chain{Name: name, Type: kind, Hooknum: hook, Priority: &priority})
	}
	nat, filter := nftables.ChainTypeNAT, nftables.ChainTypeFilter
	refuse := add(&nftables.Chain{Name: "refuse"})
	for _, rule := range l.refuse() {
		l.addRule(refuse, rule)
	}
	for _, c := range []*nftables.Chain{
		base("prerouting", nat, nftables.ChainHookPrerouting, priorityDNAT),
		base("output", nat, nftables.ChainHookOutput, priorityDNAT),
	} {
		for _, f := range l.families {
			l.addRule(c, f.dispatch())
		}
	}
	postrouting := base("postrouting", nat, nftables.ChainHookPostrouting, prioritySNAT)
	for _, f := range l.families {
		l.addRule(postrouting, f.hairpin())
	}
	for _, r := range ranges {
		if masquerade != MasqueradeNone {
			l.addRule(postrouting, l.family(r.Addr().Is6()).masquerade(masquerade, r))
		}
	}
	for _, c := range []*nftables.Chain{
		base("filter-forward", filter, nftables.ChainHookForward, priorityFilter),
		base("filter-input", filter, nftables.ChainHookInput, priorityFilter),
		base("filter-output", filter, nftables.ChainHookOutput, priorityFilter),
	} {
		for _, f := range l.families {
			l.addRule(c, f.toVIP(refuse.Name))
		}
		for _, r := range ranges {
			l.addRule(c, l.family(r.Addr().Is6()).intoRange(r, refuse.Name))
		}
	}
}

func (l *layout) addRule(c *nftables.Chain, exprs []expr.Any) {
	l.rules = append(l.rules, l.newRule(c, exprs))
}

// newRule returns a rule whose comment is a hash of its expressions. The comment tells the rule
// from those of other programs when the table is read: the kernel returns expressions in another
// form than it gets them.
func (l *layout) newRule(c *nftables.Chain, exprs []expr.Any) *nftables.Rule {
	sum := sha256.New()
	for _, e := range exprs {
		b, err := expr.Marshal(byte(l.table.Family), e)
		if err != nil {
			panic(fmt.Sprintf("encode a rule of chain %s: %v", c.Name, err)) // the expressions are constants
		}
		sum.Write(b)
	}
	comment := fmt.Sprintf("seamark %x", sum.Sum(nil)[:6])
	return &nftables.Rule{
		Table: l.table, Chain: c, Exprs: exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
	}
}

// classChain returns the chain of a class. Its name shows what it does.
func (l *layout) classChain(c ruleset.Class) *nftables.Chain {
	name := fmt.Sprintf("pick%s-%d", l.family(c.IPv6).suffix, c.Count)
	if c.Affinity > 0 {
		name = fmt.Sprintf("keep%s-%d-%ds", l.family(c.IPv6).suffix, c.Count, c.Affinity)
	}
	return &nftables.Chain{Name: name, Table: l.table}
}

func (l *layout) classRules(c ruleset.Class) []*nftables.Rule {
	chain, f := l.classChain(c), l.family(c.IPv6)
	var rules []*nftables.Rule
	add := func(exprs ...expr.Any) {
		rules = append(rules, l.newRule(chain, exprs))
	}
	if c.Affinity > 0 {
		add(f.sendRememberedClient(c.Affinity)...)
		add(f.deleteStaleClient()...)
		add(f.pickAndRemember(c.Count, c.Affinity)...)
	}
	add(f.pick(c.Count)...)
	// During the commit of a transaction, a packet can see the old count and the new endpoints.
	// Index 0 exists in both.
	add(f.pick(1)...)
	return rules
}

func (l *layout) classElement(c ruleset.Class) nftables.SetElement {
	return nftables.SetElement{
		Key:         []byte(c.Key()),
		VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: l.classChain(c).Name},
	}
}
