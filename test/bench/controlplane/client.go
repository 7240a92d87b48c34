package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netns"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
)

// podClient is a client in a pod of the importing cluster, and a server in a pod of the exporting
// one. The client's requests are sent by this process, from the pod's network namespace: that is
// faster than a command in the pod, and both have the same clock.
type podClient struct {
	pid       int    // of a process in the pod
	dnsServer string // of the pod
	serverIP  string
}

// reached is when a client got as far as a step, and how often it was told before that the name
// does not exist.
type reached struct {
	resolved, connected time.Time
	denied              int
}

func (e *environment) startClient(ctx context.Context, image string) (*podClient, error) {
	server, err := e.exporter.startPod(ctx, "server", image, "serve")
	if err != nil {
		return nil, err
	}
	pod, err := e.importer.startPod(ctx, "client", image, "pause")
	if err != nil {
		return nil, err
	}
	c := &podClient{serverIP: server.Status.PodIP}
	if c.pid, err = podProcess(pod.Name, "workload"); err != nil {
		return nil, err
	}
	resolver, err := dns.ClientConfigFromFile(fmt.Sprintf("/proc/%d/root/etc/resolv.conf", c.pid))
	if err != nil {
		return nil, fmt.Errorf("read the client's resolv.conf: %w", err)
	}
	c.dnsServer = net.JoinHostPort(resolver.Servers[0], resolver.Port)
	return c, nil
}

// clientConnects exports services of a real server and connects to each by name, from a pod, once
// the service is usable.
func clientConnects(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	const prefix = "client"
	r.Say("%d services that a client in a pod connects to by name", size.samples)
	if err := e.serveAt(ctx, prefix, size.samples, func() []string { return []string{e.client.serverIP} }); err != nil {
		return err
	}
	var usable, resolved, connected []time.Duration
	denied := 0
	err := withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, _ barePropagator) error {
		for i := range size.samples {
			name := serviceName(prefix, i)
			start, err := agents.export(ctx, name)
			if err := recordStep(ctx, &usable, agents, start, err, factUsable(name)); err != nil {
				return err
			}
			got, err := e.client.reach(ctx, name)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", name, err)
			}
			resolved, connected = append(resolved, got.resolved.Sub(start)), append(connected, got.connected.Sub(start))
			if got.denied > 0 {
				denied++
			}
		}
		for i := range size.samples {
			if _, err := agents.unexport(ctx, serviceName(prefix, i)); err != nil {
				return err
			}
		}
		_, err := agents.observer.await(ctx, factsOf(prefix, size.samples, factGone)...)
		return err
	})
	if err != nil {
		return err
	}
	addTimes(r, "export → usable, of services with a client", usable, nil, 0)
	addTimes(r, "export → name resolves in a pod", resolved, nil, 0)
	addTimes(r, "export → a pod has connected by name and got an answer", connected, nil, 0)
	r.Rows[len(r.Rows)-2].Detail = fmt.Sprintf("the first query of %d of %d clients came too early; cluster DNS keeps that answer for a second",
		denied, size.samples)
	return e.awaitNoRequests(ctx, afterSome)
}

// clientRetry is the pause of the client after a failure.
const clientRetry = 2 * time.Millisecond

// reach resolves the name of a service and gets an answer over a connection to its address, each as
// often as needed.
func (c *podClient) reach(ctx context.Context, service string) (reached, error) {
	var got reached
	done := make(chan error, 1)
	go func() { done <- c.inPod(func() error { return c.tryUntilReached(ctx, service, &got) }) }()
	err := <-done
	return got, err
}

// inPod runs f on a thread in the pod's network namespace.
func (c *podClient) inPod(f func() error) error {
	pod, err := netns.GetFromPid(c.pid)
	if err != nil {
		return fmt.Errorf("network namespace of the client's pod: %w", err)
	}
	defer pod.Close()      //nolint:errcheck // only read
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := netns.Set(pod); err != nil {
		return fmt.Errorf("enter the network namespace of the client's pod: %w", err)
	}
	return f()
}

func (c *podClient) tryUntilReached(ctx context.Context, service string, got *reached) error {
	var address string
	for ; address == ""; got.denied++ {
		var err error
		if address, err = c.resolve(ctx, service); err != nil {
			return err
		}
		if address != "" {
			got.resolved = time.Now()
			break
		}
		if err := sleep(ctx, clientRetry); err != nil {
			return err
		}
	}
	for {
		err := get(ctx, net.JoinHostPort(address, "80"))
		if err == nil {
			got.connected = time.Now()
			return nil
		}
		if wait := sleep(ctx, clientRetry); wait != nil {
			return fmt.Errorf("%w (last error: %w)", wait, err)
		}
	}
}

// resolve returns the address of a service, or "" if there is none.
func (c *podClient) resolve(ctx context.Context, service string) (string, error) {
	name := objects.DNSName(types.NamespacedName{Namespace: benchNamespace, Name: service}, objects.DefaultZone)
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), dns.TypeA)
	answer, _, err := (&dns.Client{Timeout: time.Second}).ExchangeContext(ctx, question, c.dnsServer)
	if err != nil {
		return "", fmt.Errorf("query %s: %w", c.dnsServer, err)
	}
	for _, record := range answer.Answer {
		if a, ok := record.(*dns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", nil
}

// get sends an HTTP request over a new connection of this thread. The HTTP client would connect
// on another thread, outside of the pod.
func get(ctx context.Context, address string) error {
	const timeout = 100 * time.Millisecond // a packet that no rule translates yet is lost
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing of it is needed
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s", response.Status)
	}
	return nil
}
