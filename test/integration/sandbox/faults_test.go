//go:build linux

package sandbox_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/internal/sandbox/relay"
	"github.com/seamark-dev/seamark/test/harness"
)

// TestCutIsOneWay drops packets from west at north. Packets from north arrive in west meanwhile. A
// datagram that is sent after the heal shows that those before it were dropped, not late.
func TestCutIsOneWay(t *testing.T) {
	west, north := newNodes(t)
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			there, back := newFlow(t, west, north, family), newFlow(t, north, west, family)
			there.send(1, 1)
			there.receive(1)
			north.apply(fault.Rule{From: west.ranges(), Percent: 100})
			there.send(2, 100)
			back.send(1, 100)
			if got := back.receive(100); len(got) != 100 {
				t.Errorf("%d of 100 datagrams arrived in the direction that is not cut", len(got))
			}
			north.apply()
			there.send(200, 1)
			if got := there.receive(200); len(got) != 1 {
				t.Errorf("%d datagrams arrived although they were cut off", len(got)-1)
			}
		})
	}
}

// TestLossIsTheShareThatWasAsked counts datagrams. The bounds are ten standard deviations away from
// the share, so that chance does not fail the test.
func TestLossIsTheShareThatWasAsked(t *testing.T) {
	const count, percent, tolerance = 10000, 10.0, 300
	west, north := newNodes(t)
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			there, back := newFlow(t, west, north, family), newFlow(t, north, west, family)
			north.apply(fault.Rule{From: west.ranges(), Percent: percent})
			there.send(1, count)
			back.send(1, count)
			north.apply()
			there.send(count+1, 1)
			lost := count + 1 - len(there.receive(count+1))
			t.Logf("%d of %d datagrams were lost", lost, count)
			if want := int(count * percent / 100); lost < want-tolerance || lost > want+tolerance {
				t.Errorf("%d datagrams were lost, want %d ± %d", lost, want, tolerance)
			}
			if got := back.receive(count); len(got) != count {
				t.Errorf("%d of %d datagrams arrived in the other direction", len(got), count)
			}
		})
	}
}

// startRelay delays packets that arrive at a node.
func startRelay(t *testing.T, n *node, from []netip.Prefix, delay time.Duration) (stop func()) {
	t.Helper()
	options := relay.Options{Device: "delay-west", Beside: device, Delay: delay}
	var log bytes.Buffer
	cmd := &exec.Cmd{Path: relay.Program, Args: relay.Args(options), Stderr: &log}
	exited, err := n.Start(cmd)
	must(t, err)
	harness.Eventually(t, "the device of the relay is up", func() error {
		return n.Do(func() error {
			link, err := netlink.LinkByName(options.Device)
			if err == nil && link.Attrs().Flags&net.FlagUp == 0 {
				err = errors.New("it is down")
			}
			return err
		})
	})
	n.apply(fault.Rule{From: from, Via: options.Device})
	return func() {
		n.apply()
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		<-exited
		if cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("the relay ended with %s: %s", cmd.ProcessState, &log)
		}
	}
}

// TestDelay checks that every datagram arrives, in order and not before the delay is over, in one
// direction only, and that the device is gone with the relay.
func TestDelay(t *testing.T) {
	const delay, count = 300 * time.Millisecond, 1000
	west, north := newNodes(t)
	stop := startRelay(t, north, west.ranges(), delay)
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			there, back := newFlow(t, west, north, family), newFlow(t, north, west, family)
			there.send(1, count)
			back.send(1, count)
			if least, _ := delays(back.receive(count)); least >= delay {
				t.Errorf("all datagrams in the other direction took longer than the delay: %s", least)
			}
			got := there.receive(count)
			if len(got) != count || !slices.IsSortedFunc(got, func(a, b received) int { return int(a.number) - int(b.number) }) {
				t.Errorf("%d of %d datagrams arrived, or they are not in order", len(got), count)
			}
			least, most := delays(got)
			t.Logf("datagrams took %s to %s", least, most)
			if least < delay {
				t.Errorf("a datagram arrived %s after it was sent, before the delay of %s was over", least, delay)
			}
		})
	}
	stop()
	for _, family := range families {
		there := newFlow(t, west, north, family)
		there.send(1, count)
		if least, _ := delays(there.receive(count)); least >= delay {
			t.Errorf("%s: without a relay all datagrams took longer than the delay: %s", family, least)
		}
	}
	must(t, north.Do(func() error {
		if link, err := netlink.LinkByName("delay-west"); err == nil {
			t.Errorf("the relay has ended, but its device %s exists", link.Attrs().Name)
		}
		return nil
	}))
}

func delays(all []received) (least, most time.Duration) {
	by := func(a, b received) int { return int(a.after - b.after) }
	return slices.MinFunc(all, by).after, slices.MaxFunc(all, by).after
}

// TestDelayedStream sends a megabyte over TCP, whose segments the kernel does not split before the
// relay, and whose checksums it leaves out until then.
func TestDelayedStream(t *testing.T) {
	west, north := newNodes(t)
	defer startRelay(t, north, west.ranges(), 20*time.Millisecond)()
	content := bytes.Repeat([]byte("seamark "), 1<<17)
	for _, family := range families {
		var listener net.Listener
		must(t, north.Do(func() (err error) {
			listener, err = net.Listen("tcp", netip.AddrPortFrom(north.addrs[family], 0).String())
			return err
		}))
		sum := make(chan [sha256.Size]byte, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			sum <- sha256.Sum256(got)
		}()
		must(t, west.Do(func() error {
			conn, err := net.DialTimeout("tcp", listener.Addr().String(), time.Minute)
			if err != nil {
				return err
			}
			if _, err := conn.Write(content); err != nil {
				return err
			}
			return conn.Close()
		}))
		select {
		case got := <-sum:
			if got != sha256.Sum256(content) {
				t.Errorf("%s: the content arrived changed", family)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the content has not arrived within a minute", family)
		}
		must(t, listener.Close())
	}
}
