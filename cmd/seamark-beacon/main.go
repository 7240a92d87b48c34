// Command seamark-beacon answers the probes by which other clusters of a clusterset find out
// whether they reach this one.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/beacon"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/daemon/logs"
	"github.com/seamark-dev/seamark/internal/daemon/version"
)

// main does not use package daemon, which brings the client of the API server along: a beacon needs
// none, and is to be small.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := command()
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		options beacon.Options
		health  string
		level   slog.Level
	)
	cmd := &cobra.Command{
		Use:   "seamark-beacon",
		Short: "Answer the probes of other clusters",
		Long: "seamark-beacon answers probes of clusters that have the key of this one, and nothing else. It runs in some pods of each\n" +
			"member of a clusterset, and goes on while the API server, the agent or the broker is away.",
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.Listen, "listen", ":"+strconv.Itoa(wire.Port), "UDP address at which probes are answered")
	flags.StringVar(&options.Folder, "identity", "/etc/seamark-beacon", "folder with the cluster's id and key, in the files "+
		wire.ClusterIDFile+" and "+wire.KeyFile+"; read again when it changes")
	flags.DurationVar(&options.DrainFor, "drain-for", 15*time.Second, "how long to go on answering after the process was told to end")
	flags.StringVar(&health, "health-probe-bind-address", ":9442", "address at which /healthz is served; 0 turns it off")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		handler := logs.New(os.Stderr, level)
		options.Log, options.OnClusterID = slog.New(handler), handler.SetCluster
		return beacon.Run(cmd.Context(), options, health)
	}
	return cmd
}
