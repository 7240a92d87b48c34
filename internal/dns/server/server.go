// Package server builds seamark-dns: CoreDNS with the plugin `clusterset` and the few plugins that
// a cluster's own DNS uses, in the order in which a query passes them.
package server

import (
	"os"
	"runtime/debug"
	"slices"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	// The plugins register themselves.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/pprof"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/seamark-dev/seamark/internal/daemon/memory"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	_ "github.com/seamark-dev/seamark/internal/dns"
)

// directives are all plugins in the order in which a query passes them. `clusterset` comes after
// `kubernetes`, so reverse names of the cluster's own services are answered there.
var directives = []string{
	"reload", "bind", "ready", "health", "pprof", "prometheus", "errors", "log", "loadbalance", "cache", "template", "hosts",
	"kubernetes", "clusterset", "loop", "forward", "whoami",
}

// Directives are the names of the plugins in the order in which a query passes them.
func Directives() []string { return slices.Clone(directives) }

// Configure sets CoreDNS up in this process with these plugins. Call it once, before a server
// starts.
func Configure() {
	dnsserver.Directives = Directives()
	caddy.AppName = "seamark-dns"
	caddy.AppVersion = version.String()
}

// GCPercent trades a little memory for CPU: each query leaves a message behind, and a collection
// walks through all stored answers to free them.
const GCPercent = 150

// Run parses flags and Corefile as CoreDNS does and serves until the process is ended by a signal.
// It exits with code 1 on failure.
func Run() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(GCPercent)
	}
	memory.RespectLimit()
	Configure()
	dnsserver.Quiet = true // a log line replaces the banner
	useSeamarkLogs()
	coremain.Run()
}
