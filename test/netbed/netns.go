// Package netbed builds nodes and pods out of network namespaces, with real sockets in them. The
// namespaces have no names: only this process holds them, so they disappear with it however it
// ends. It needs root.
package netbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Namespace is a network namespace of this process.
type Namespace struct {
	handle netns.NsHandle
	work   chan func()
}

// NewNamespace creates a network namespace whose loopback interface is up. It fails without
// CAP_SYS_ADMIN.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := enter(n)
		made <- err
		if err != nil {
			return
		}
		for f := range n.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make a network namespace (this needs root): %w", err)
	}
	err := n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), sysctl("net/ipv6/conf/default/accept_dad", "0"), sysctl("net/ipv6/conf/all/accept_dad", "0"))
	})
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter moves the calling thread into a new namespace.
func enter(n *Namespace) (err error) {
	n.handle, err = netns.New()
	return err
}

// FD returns a file descriptor of the namespace.
func (n *Namespace) FD() int { return int(n.handle) }

// Do runs f on a thread inside the namespace. Sockets that f opens stay in the namespace. Calls are
// serialized.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	n.work <- func() { done <- f() }
	return <-done
}

// Go runs f on another thread inside the namespace and returns at once. The channel receives f's
// result.
func (n *Namespace) Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := netns.Set(n.handle); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return done
}

// Start starts a process inside the namespace that ends, at the latest, with this one. The channel
// is closed when it has ended and been waited for.
func (n *Namespace) Start(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // of the thread that starts it, which therefore waits for it
	started, exited := make(chan error), make(chan struct{})
	n.Go(func() error {
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is its caller's business
		}
		close(exited)
		return nil
	})
	return exited, <-started
}

// Close releases the namespace. Sockets and processes in it keep it alive until they end.
func (n *Namespace) Close() error {
	close(n.work)
	return n.handle.Close()
}

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
}
