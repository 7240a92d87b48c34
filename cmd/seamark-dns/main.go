// Command seamark-dns answers the names of a clusterset. It is CoreDNS with the plugin
// `clusterset`, and can serve as a cluster's own DNS too. It takes CoreDNS's flags (-conf,
// -dns.port, -version, …) and is configured by a Corefile.
package main

import "github.com/seamark-dev/seamark/internal/dns/server"

func main() { server.Run() }
