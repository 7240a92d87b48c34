// Package dns is the CoreDNS plugin `clusterset`. It answers the names of a clusterset from the
// ServiceImports and imported EndpointSlices of the local API server.
//
// A query comes in at handler.go, which finds its zone and refuses what the plugin does not serve.
// Package zone then looks up the prepared answer of the service and writes the reply; it does no
// I/O and takes no lock.
//
// A change comes in at reflector.go, one reflector for each kind of object. objects.go reduces an
// object to what DNS needs, state.go stores it and marks its service as dirty, and controller.go
// rebuilds the answers of dirty services, without what unreachable.go leaves out. setup.go parses
// the Corefile, connect.go makes the API clients.
//
// Memory holds, for each service, its prepared answers and the reduced objects behind them. For a
// service with a clusterset IP it holds no endpoints.
package dns

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

const (
	pluginName  = "clusterset"
	defaultZone = v1alpha1.DefaultZone + "."
	defaultTTL  = 5
	maxTTL      = 3600
	// nodeNameEnv is the environment variable with the name of this server's node, whose topology
	// zone is read.
	nodeNameEnv = "NODE_NAME"
)

var log = clog.NewWithPlugin(pluginName)

func init() { plugin.Register(pluginName, setup) }

// onClusterID is called with the cluster's id when it is read, and when it changes.
var onClusterID = func(string) {}

// OnClusterID sets a function that is called with the cluster's id when it is read, and when it
// changes. It is for the process around the plugin. Call it before a server starts.
func OnClusterID(f func(clusterID string)) { onClusterID = f }

// settings are the options in the Corefile.
type settings struct {
	zone.Options
	locality            zone.Locality
	reverse             []string
	kubeconfig, context string
	fallthroughZones    []string // nil for none
	// nsService is the Service, as namespace/name, whose ClusterIPs are the addresses of
	// ns.dns.<zone>. If it is empty, they are the addresses of this server.
	nsService      string
	startupTimeout time.Duration
}

func setup(c *caddy.Controller) error {
	s, err := parseCorefile(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	p := &Plugin{zone: zone.New(s.Options), reverse: s.reverse}
	p.zone.SetNameServers(listenAddresses(dnsserver.GetConfig(c).ListenHosts))
	if s.fallthroughZones != nil {
		p.fall.SetZonesFromArgs(s.fallthroughZones)
	}
	if p.data, err = newController(s, p.zone, os.Getenv(nodeNameEnv)); err != nil {
		return plugin.Error(pluginName, err)
	}
	reloading := true
	c.OnFirstStartup(func() error {
		reloading = false
		return nil
	})
	c.OnStartup(func() error {
		p.writesBytes = passesBytes(dnsserver.GetConfig(c))
		return p.data.start(reloading)
	})
	c.OnShutdown(p.data.stop)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		p.Next = next
		return p
	})
	return nil
}

// parseCorefile reads the one `clusterset` of a server block.
func parseCorefile(c *caddy.Controller) (settings, error) {
	s := settings{Options: zone.Options{TTL: defaultTTL}, locality: zone.Locality{Classic: true}, startupTimeout: defaultStartupTimeout}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return s, plugin.ErrOnce
		}
		if err := s.setZones(c.RemainingArgs(), c.ServerBlockKeys); err != nil {
			return s, err
		}
		for c.NextBlock() {
			if err := s.setOption(c, c.Val(), c.RemainingArgs()); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// setZones separates the zone to answer from the reverse zones.
func (s *settings) setZones(args, serverBlock []string) error {
	zones := plugin.OriginsFromArgsOrServerBlock(args, serverBlock)
	if len(args) == 0 && slices.Equal(zones, []string{"."}) {
		zones = []string{defaultZone} // a server block for the root does not make the root a clusterset
	}
	for _, z := range zones {
		switch {
		case zone.IsReverse(z):
			s.reverse = append(s.reverse, z)
		case z == ".":
			return fmt.Errorf("the root cannot be a clusterset's zone: name the zone, usually %s", defaultZone)
		case s.Name != "":
			return fmt.Errorf("%s and %s: one zone can be answered here; a second needs a server block of its own", s.Name, z)
		default:
			s.Name = z
		}
	}
	if s.Name == "" {
		return fmt.Errorf("only reverse zones are named: add the zone of the clusterset, usually %s", defaultZone)
	}
	slices.SortFunc(s.reverse, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return nil
}

func (s *settings) setOption(c *caddy.Controller, name string, args []string) error {
	setOnly := func(to *string) error {
		if len(args) != 1 {
			return c.ArgErr()
		}
		*to = args[0]
		return nil
	}
	switch name {
	case "kubeconfig":
		if len(args) != 1 && len(args) != 2 {
			return c.ArgErr()
		}
		s.kubeconfig, s.context = args[0], strings.Join(args[1:], "")
	case "ttl":
		var text string
		if err := setOnly(&text); err != nil {
			return err
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n > maxTTL {
			return c.Errf("ttl %s: want seconds from 0 to %d", text, maxTTL)
		}
		s.TTL = uint32(n)
	case "cluster":
		return setOnly(&s.locality.Cluster)
	case "zone":
		return setOnly(&s.locality.Zone)
	case "ns":
		if err := setOnly(&s.nsService); err != nil {
			return err
		}
		if namespace, name, ok := strings.Cut(s.nsService, "/"); !ok || namespace == "" || name == "" {
			return c.Errf("ns %s: want NAMESPACE/NAME of a Service", s.nsService)
		}
	case "startup_timeout":
		var text string
		if err := setOnly(&text); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return c.Errf("startup_timeout %s: want a duration such as 30s", text)
		}
		s.startupTimeout = d
	case "locality":
		return s.setLocality(c, args)
	case "lighthouse-names":
		if len(args) != 0 {
			return c.ArgErr()
		}
		s.ClusterNames = true
	case "fallthrough":
		s.fallthroughZones = append([]string{}, args...)
	default:
		return c.Errf("unknown option %q: want kubeconfig, ttl, ns, cluster, zone, locality, lighthouse-names, "+
			"startup_timeout or fallthrough", name)
	}
	return nil
}

func (s *settings) setLocality(c *caddy.Controller, args []string) error {
	s.locality.Classic = false
	for _, kind := range args {
		switch {
		case kind == "headless":
			s.locality.Headless = true
		case kind == "classic":
			s.locality.Classic = true
		case kind == "none" && len(args) == 1:
		default:
			return c.Errf("locality %s: want headless, classic, both, or none", strings.Join(args, " "))
		}
	}
	if len(args) == 0 {
		return c.ArgErr()
	}
	return nil
}

// listenAddresses returns the addresses on which this server can be reached: those it is bound to
// or, if it is bound to all, those of the machine.
func listenAddresses(hosts []string) []netip.Addr {
	var out []netip.Addr
	add := func(text string, loopback bool) {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || (ip.IsLoopback() && !loopback) || slices.Contains(out, ip.Unmap()) {
			return
		}
		out = append(out, ip.Unmap())
	}
	for _, host := range hosts {
		add(host, true)
	}
	if len(out) > 0 {
		return out
	}
	machine, err := net.InterfaceAddrs()
	if err != nil && !errors.Is(err, os.ErrPermission) {
		log.Warningf("cannot read the addresses of this machine (%v): the zone's name server has none", err)
	}
	for _, a := range machine {
		if n, ok := a.(*net.IPNet); ok {
			add(n.IP.String(), false)
		}
	}
	return out
}
