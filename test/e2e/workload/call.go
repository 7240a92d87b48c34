package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
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
	// Answers are the clusters in the order of the requests, with --list; "" is a failure. Starts are
	// when the requests began, in milliseconds since 1970.
	Answers []string `json:"answers,omitempty"`
	Starts  []int64  `json:"starts,omitempty"`
	// Connections is how many were opened, with --one-connection.
	Connections int `json:"connections,omitempty"`
	// LongestGap is the longest time from one success (or the start) to the next (or the end), in
	// milliseconds.
	LongestGap int64 `json:"longestGapMilliseconds"`
}

type caller struct {
	count              int
	interval, duration time.Duration
	timeout            time.Duration
	services           int
	list               bool
	concurrent         bool
	oneConnection      bool
	// stopped is closed when no further request is to be sent; nil for never.
	stopped <-chan struct{}
}

func newCall() *cobra.Command {
	var c caller
	var untilEOF bool
	cmd := &cobra.Command{
		Use:   "call http://HOST:PORT | tcp://HOST:PORT | udp://HOST:PORT | dns://NAME",
		Short: "Send requests, each over a new connection, and count the answers by cluster and pod",
		Long: "Send requests, each over a new connection unless --one-connection is given, and count the answers by cluster and pod. " +
			"A * in the target stands for the number of a service, see --services. With dns://NAME it looks the name up, once and " +
			"without a search list, and counts the answers by their first address; one without an address is a failure.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask, err := c.asker(args[0])
			if err != nil {
				return err
			}
			if untilEOF {
				c.stopped = endOf(os.Stdin)
				fmt.Println("calling " + args[0])
			}
			if c.concurrent {
				return printJSON(c.runConcurrently(cmd.Context(), ask))
			}
			return printJSON(c.run(cmd.Context(), ask))
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&c.count, "count", 1, "how many requests, without --duration")
	flags.DurationVar(&c.duration, "duration", 0, "send requests for this long")
	flags.BoolVar(&untilEOF, "until-eof", false, "say so in a line and send requests until standard input ends, without --duration and --concurrent")
	flags.DurationVar(&c.interval, "interval", 0, "pause between requests")
	flags.DurationVar(&c.timeout, "timeout", 2*time.Second, "how long one request may take, name lookup included")
	flags.IntVar(&c.services, "services", 1, "call services 0 to N-1 in turn")
	flags.BoolVar(&c.list, "list", false, "list the cluster that answered each request, in order, and when it began")
	flags.BoolVar(&c.concurrent, "concurrent", false, "begin a request every --interval for --duration, also while others wait for their answers")
	flags.BoolVar(&c.oneConnection, "one-connection", false, "send all requests over one connection (http) or from one socket (udp)")
	return cmd
}

// endOf returns a channel that is closed when the input has ended.
func endOf(input io.Reader) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, input) // an error ends it too
		close(ended)
	}()
	return ended
}

func newTally() tally {
	return tally{Clusters: map[string]int{}, Pods: map[string]int{}, Clients: map[string]int{}, Errors: map[string]int{}}
}

func (c caller) run(ctx context.Context, ask asker) tally {
	t := newTally()
	start := time.Now()
	last := start
	gap := func() { t.LongestGap = max(t.LongestGap, time.Since(last).Milliseconds()) }
	more := func() bool {
		if c.stopped != nil {
			select {
			case <-c.stopped:
				return false
			default:
				return true
			}
		}
		if c.duration > 0 {
			return time.Since(start) < c.duration
		}
		return t.Requests < c.count
	}
	for more() && ctx.Err() == nil {
		began := time.Now()
		got, err := c.once(ctx, ask, t.Requests)
		t.count(began, got, err, c.list)
		if err == nil {
			gap()
			last = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-c.stopped:
		case <-time.After(c.interval):
		}
	}
	gap()
	t.Connections = ask.connections()
	return t
}

// runConcurrently begins requests at a fixed rate, so that those that hang do not keep others away.
func (c caller) runConcurrently(ctx context.Context, ask asker) tally {
	type outcome struct {
		began time.Time
		got   answer
		err   error
	}
	var outcomes []*outcome
	var pending sync.WaitGroup
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for start := time.Now(); time.Since(start) < c.duration && ctx.Err() == nil; <-ticker.C {
		o, number := &outcome{began: time.Now()}, len(outcomes)
		outcomes = append(outcomes, o)
		pending.Go(func() { o.got, o.err = c.once(ctx, ask, number) })
	}
	pending.Wait()
	t := newTally()
	for _, o := range outcomes {
		t.count(o.began, o.got, o.err, c.list)
	}
	return t
}

func (c caller) once(ctx context.Context, ask asker, number int) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return ask.ask(ctx, ask.target(number%c.services))
}

func (t *tally) count(began time.Time, got answer, err error, list bool) {
	t.Requests++
	if list {
		t.Answers, t.Starts = append(t.Answers, got.Cluster), append(t.Starts, began.UnixMilli())
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
