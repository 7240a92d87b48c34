// Command seamark-dns answers the names of a clusterset: it is a CoreDNS with the plugin `clusterset`, and can be a cluster's own DNS
// too. It takes CoreDNS's flags (-conf, -dns.port, -version, …); what it does is in its Corefile.
package main

import "github.com/seamark-dev/seamark/internal/dns/server"

func main() { server.Run() }
