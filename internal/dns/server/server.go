// Package server is the CoreDNS that seamark-dns is: the plugin `clusterset` and the small set that a cluster's own DNS uses, in the
// order in which a query passes them.
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

	"github.com/seamark-dev/seamark/internal/daemon/version"
	_ "github.com/seamark-dev/seamark/internal/dns"
)

// directives are all plugins, first the one that sees a query first. `clusterset` comes after `kubernetes`: a reverse name that the
// cluster's own services have is theirs.
var directives = []string{
	"reload", "bind", "ready", "health", "pprof", "prometheus", "errors", "log", "loadbalance", "cache", "template", "hosts",
	"kubernetes", "clusterset", "loop", "forward", "whoami",
}

// Directives are the names of the plugins in the order in which a query passes them.
func Directives() []string { return slices.Clone(directives) }

// Configure makes this process's CoreDNS the one described here. Call it once, before a server starts.
func Configure() {
	dnsserver.Directives = Directives()
	caddy.AppName = "seamark-dns"
	caddy.AppVersion = version.String()
}

// gcPercent spends a little memory on CPU: each query leaves its message behind, and what is known must not be walked through
// for so few of them.
const gcPercent = 150

// Run reads flags and Corefile as CoreDNS does and serves until the process is told to end. It exits with 1 when it cannot.
func Run() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	Configure()
	dnsserver.Quiet = true // instead of a banner there is a line in the log
	useSeamarkLogs()
	coremain.Run()
}
