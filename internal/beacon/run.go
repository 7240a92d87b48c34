package beacon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Run runs a beacon, and serves at healthAddress that its process lives, unless that is "0". The
// health of a beacon depends on nothing else: one that waits for its key, or whose API server is
// away, must not be restarted.
func Run(ctx context.Context, o Options, healthAddress string) error {
	responder, err := Open(o)
	if err != nil {
		return err
	}
	if healthAddress != "0" {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", healthAddress)
		if err != nil {
			return errors.Join(fmt.Errorf("open the socket for health probes: %w", err), responder.socket.Close())
		}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
		defer func() { _ = server.Close() }()
		go func() { _ = server.Serve(listener) }() // returns when the process ends
	}
	return responder.Run(ctx)
}
