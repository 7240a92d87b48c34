// Command constant is the ceiling of the DNS benchmark: seamark-dns with one more plugin, which
// gives every query the same address.
package main

import (
	"context"
	"net"
	"runtime/debug"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/internal/dns/server"
)

type constant struct{}

// Name implements plugin.Handler.
func (constant) Name() string { return "constant" }

// ServeDNS implements plugin.Handler.
func (constant) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	m := new(dns.Msg)
	m.SetReply(r)
	m.Authoritative = true
	hdr := dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}
	m.Answer = []dns.RR{&dns.A{Hdr: hdr, A: net.IPv4(243, 0, 0, 1)}}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

func main() {
	debug.SetGCPercent(server.GCPercent)
	server.Configure()
	dnsserver.Directives = append(server.Directives(), "constant")
	plugin.Register("constant", func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return constant{} })
		return nil
	})
	coremain.Run()
}
