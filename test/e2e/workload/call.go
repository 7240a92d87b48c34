package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// tally counts the outcomes of requests.
type tally struct {
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Clusters and Pods count the answers by the server; Clients count them by the address of the
	// client as the server sees it.
	Clusters map[string]int `json:"clusters"`
	Pods     map[string]int `json:"pods"`
	Clients  map[string]int `json:"clients"`
	// Errors count the failures by their text.
	Errors map[string]int `json:"errors,omitempty"`
	// Answers are the clusters in the order in which they answered, with --list; "" is a failure.
	Answers []string `json:"answers,omitempty"`
	// LongestGap is the longest time from one success (or the start) to the next (or the end), in
	// milliseconds.
	LongestGap int64 `json:"longestGapMilliseconds"`
}

type caller struct {
	count              int
	interval, duration time.Duration
	timeout            time.Duration
	list               bool
}

func newCall() *cobra.Command {
	var c caller
	cmd := &cobra.Command{
		Use:   "call http://HOST:PORT | tcp://HOST:PORT | udp://HOST:PORT",
		Short: "Send requests, each over a new connection, and count the answers by cluster and pod",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := url.Parse(args[0])
			if err != nil {
				return err
			}
			ask := askers[target.Scheme]
			if ask == nil {
				return fmt.Errorf("cannot call %q: give an http, tcp or udp address", args[0])
			}
			return printJSON(c.run(cmd.Context(), func(ctx context.Context) (answer, error) { return ask(ctx, target) }))
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&c.count, "count", 1, "how many requests, without --duration")
	flags.DurationVar(&c.duration, "duration", 0, "send requests for this long")
	flags.DurationVar(&c.interval, "interval", 0, "pause between requests")
	flags.DurationVar(&c.timeout, "timeout", 2*time.Second, "how long one request may take, name lookup included")
	flags.BoolVar(&c.list, "list", false, "list the cluster that answered each request, in order")
	return cmd
}

func (c caller) run(ctx context.Context, ask func(context.Context) (answer, error)) tally {
	t := tally{Clusters: map[string]int{}, Pods: map[string]int{}, Clients: map[string]int{}, Errors: map[string]int{}}
	start := time.Now()
	last := start
	gap := func() { t.LongestGap = max(t.LongestGap, time.Since(last).Milliseconds()) }
	more := func() bool {
		if c.duration > 0 {
			return time.Since(start) < c.duration
		}
		return t.Requests < c.count
	}
	for more() && ctx.Err() == nil {
		got, err := c.once(ctx, ask)
		t.count(got, err, c.list)
		if err == nil {
			gap()
			last = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.interval):
		}
	}
	gap()
	return t
}

func (c caller) once(ctx context.Context, ask func(context.Context) (answer, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return ask(ctx)
}

func (t *tally) count(got answer, err error, list bool) {
	t.Requests++
	if list {
		t.Answers = append(t.Answers, got.Cluster)
	}
	if err != nil {
		t.Failed++
		t.Errors[err.Error()]++
		return
	}
	t.Clusters[got.Cluster]++
	t.Pods[got.Pod]++
	t.Clients[got.Client]++
}

var askers = map[string]func(context.Context, *url.URL) (answer, error){"http": askHTTP, "tcp": askStream, "udp": askStream}

// webClient opens a connection for each request, because the data plane chooses an endpoint per
// connection.
var webClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func askHTTP(ctx context.Context, target *url.URL) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return answer{}, err
	}
	response, err := webClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close() //nolint:errcheck // the body was read to its end, or an error is returned
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %s", response.Status)
	}
	return decode(response.Body)
}

// askStream reads one line. Over UDP it sends one first, because a server answers packets.
func askStream(ctx context.Context, target *url.URL) (answer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, target.Scheme, target.Host)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close() //nolint:errcheck // nothing was buffered that could be lost
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return answer{}, err
		}
	}
	if target.Scheme == "udp" {
		if _, err := conn.Write([]byte("who\n")); err != nil {
			return answer{}, err
		}
	}
	return decode(conn)
}

func decode(r io.Reader) (answer, error) {
	var got answer
	if err := json.NewDecoder(r).Decode(&got); err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return got, nil
}
