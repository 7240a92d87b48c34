package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// answer is the response of a server.
type answer struct {
	Cluster string `json:"cluster"`
	Pod     string `json:"pod"`
	// Client is the address the request came from, as the server sees it.
	Client string `json:"client"`
}

type server struct {
	cluster, pod string
	drain        time.Duration
}

func newServe() *cobra.Command {
	var s server
	var web, stream string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer every HTTP request, TCP connection and UDP packet with cluster, pod and client",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.serve(cmd.Context(), web, stream)
		},
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	flags := cmd.Flags()
	flags.StringVar(&s.cluster, "cluster", cmp.Or(os.Getenv("CLUSTER"), "unknown"), "name of the cluster in answers (default: $CLUSTER)")
	flags.StringVar(&s.pod, "pod", cmp.Or(os.Getenv("POD"), host), "name of the pod in answers (default: $POD or the host's name)")
	flags.StringVar(&web, "http", ":8080", "address for HTTP; empty for none")
	flags.StringVar(&stream, "stream", ":9090", "address for TCP and for UDP; empty for none")
	flags.DurationVar(&s.drain, "drain", 3*time.Second, "how long to go on serving after SIGTERM, until clients use other endpoints")
	return cmd
}

// serve returns when ctx has ended and the time to drain is over, or when it cannot listen.
func (s server) serve(ctx context.Context, web, stream string) error {
	failed := make(chan error, 3)
	if web != "" {
		httpServer := &http.Server{Addr: web, Handler: http.HandlerFunc(s.http), ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- httpServer.ListenAndServe() }()
	}
	if stream != "" {
		listener, err := net.Listen("tcp", stream)
		if err != nil {
			return err
		}
		packets, err := net.ListenPacket("udp", stream)
		if err != nil {
			return err
		}
		go func() { failed <- s.tcp(listener) }()
		go func() { failed <- s.udp(packets) }()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	time.Sleep(s.drain)
	return nil
}

func (s server) line(client net.Addr) []byte {
	text, err := json.Marshal(s.answer(client.String()))
	if err != nil { // three strings always marshal
		panic(err)
	}
	return append(text, '\n')
}

func (s server) answer(client string) answer {
	if host, _, err := net.SplitHostPort(client); err == nil {
		client = host
	}
	return answer{Cluster: s.cluster, Pod: s.pod, Client: client}
}

func (s server) http(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.answer(r.RemoteAddr)) // a client that went away needs no answer
}

func (s server) tcp(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // this connection failed before it was accepted
		}
		go func() {
			_, _ = conn.Write(s.line(conn.RemoteAddr())) // a client that went away needs no answer
			_ = conn.Close()
		}()
	}
}

func (s server) udp(packets net.PacketConn) error {
	buffer := make([]byte, 2048)
	for {
		_, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // an ICMP error of an earlier answer
		}
		_, _ = packets.WriteTo(s.line(from), from) // a client notices lost packets by its timeout
	}
}
