package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/ui"
	"github.com/seamark-dev/seamark/internal/ui/fleet"
	"github.com/seamark-dev/seamark/internal/ui/server"
	"github.com/seamark-dev/seamark/internal/ui/watch"
)

func newUI(s *session) *cobra.Command {
	var (
		contexts  contextFlags
		dns       []string
		port      int
		noBrowser bool
	)
	cmd := &cobra.Command{
		Use:   "ui [FILE]",
		Short: "Show the clusterset in a browser: services, clusters, and what changed when",
		Long: "ui serves a page about the clusterset on this machine, prints its address, and opens it in a browser if there is\n" +
			"one. The page shows which services have trouble in which clusters, who reaches whom, what explain says about a\n" +
			"service, and a timeline of what changed while it was open and in the hour before. It changes nothing.\n\n" +
			"Name all clusters of interest with --contexts; it needs to list and watch there. Other members are shown as far\n" +
			"as the broker knows them. With a FILE that the page saved, or an archive of gather, it shows that instead.",
		Example: "  seamark ui --contexts east,west\n" +
			"  seamark ui seamark-20260110-140203.ui.gz\n" +
			"  seamark ui incident.tar.gz",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				file, err := ui.Open(args[0])
				if err != nil {
					return err
				}
				return s.servePage(cmd, port, noBrowser, func(ctx context.Context, o ui.Options) error { return ui.Show(ctx, o, file) })
			}
			options, err := s.pageOptions(contexts, dns)
			if err != nil {
				return err
			}
			return s.servePage(cmd, port, noBrowser, func(ctx context.Context, o ui.Options) error { return ui.Follow(ctx, o, options) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	contexts.add(s, cmd)
	addServers(cmd, &dns)
	flags.IntVar(&port, "port", ui.DefaultPort, "port of the page on this machine (by default any other if this one is taken)")
	flags.BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

// pageOptions returns what the page looks into.
func (s *session) pageOptions(contexts contextFlags, dns []string) (fleet.Options, error) {
	options := fleet.Options{BrokerNamespace: contexts.brokerNamespace, Questions: watch.Questions{Forward: true, Token: true}}
	var err error
	if options.Servers, err = parseServers(dns); err != nil {
		return options, err
	}
	if len(contexts.contexts) == 0 {
		c, err := s.connect()
		if err != nil {
			return options, err
		}
		options.Clusters = append(options.Clusters, fleet.Target{Context: *s.flags.Context, Config: c.Config})
	}
	for _, name := range contexts.contexts {
		c, err := s.connectContext(name)
		if err != nil {
			return options, err
		}
		options.Clusters = append(options.Clusters, fleet.Target{Context: name, Config: c.Config})
	}
	if contexts.brokerContext != "" {
		c, err := s.connectContext(contexts.brokerContext)
		if err != nil {
			return options, err
		}
		options.Broker = &fleet.Target{Context: contexts.brokerContext, Config: c.Config}
	}
	return options, nil
}

// servePage listens, prints the address and serves until the user interrupts it.
func (s *session) servePage(cmd *cobra.Command, port int, noBrowser bool, serve func(context.Context, ui.Options) error) error {
	l, err := server.Listen(cmd.Context(), port, cmd.Flags().Changed("port"))
	if err != nil {
		return err
	}
	token := server.NewToken()
	address := server.Address(l, token)
	fmt.Fprintf(s.Out, "The page is at %s\nOnly this machine can open it, with this address. End with Ctrl-C.\n", address)
	if !noBrowser && s.onTerminal() {
		openBrowser(cmd.Context(), address)
	}
	return serve(cmd.Context(), ui.Options{Listener: l, Token: token})
}

// openBrowser opens an address in the user's browser, if there is one. The address was printed, so
// a failure is no error.
func openBrowser(ctx context.Context, address string) {
	var command []string
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", address}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return // a machine without a screen
		}
		command = []string{"xdg-open", address}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }() // the browser may have failed to start, which the user sees
	}
}
