package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Pause freezes all processes (SIGSTOP): connections stay open and get no answers, as on a machine
// that hangs. A paused control plane can be stopped. Pause fails when the control plane is stopped
// or a process has ended.
func (c *ControlPlane) Pause() error { return c.signalAll(syscall.SIGSTOP) }

// Resume continues paused processes (SIGCONT). It fails as Pause does.
func (c *ControlPlane) Resume() error { return c.signalAll(syscall.SIGCONT) }

func (c *ControlPlane) signalAll(signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etcd == nil {
		return fmt.Errorf("control plane %q is stopped: use Restart before pausing or resuming it", c.options.Name)
	}
	var errs []error
	for _, p := range []*child{c.manager, c.apiserver, c.etcd} {
		if p != nil {
			errs = append(errs, p.signal(signal))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("control plane %q: send %s: %w", c.options.Name, signal, err)
	}
	return nil
}

// CutOff interrupts the network between clients (Config, Kubeconfig) and the API server: bytes on
// open connections are dropped, and new connections get no answer. It lasts until Reconnect, Stop
// or StopAPIServer. Without a running API server it does nothing. DirectConfig is not affected.
func (c *ControlPlane) CutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.relay != nil {
		c.relay.cut()
	}
}

// Reconnect ends CutOff. Connections that were cut are reset; those opened meanwhile are served.
func (c *ControlPlane) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.relay != nil {
		c.relay.heal()
	}
}

// Snapshot saves the state and returns a function that restores it, for tests of a broker that was
// restored from a backup. The function may be called several times. Saving and restoring both
// restart the control plane on the same ports; ctx limits the restart. Both fail as Restart does,
// and when the state cannot be copied. The copy is in Dir.
func (c *ControlPlane) Snapshot(ctx context.Context) (restore func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied, err := os.MkdirTemp(c.options.Dir, "snapshot-")
	if err != nil {
		return nil, fmt.Errorf("control plane %q: making a snapshot: %w", c.options.Name, err)
	}
	save := func() error { return replaceTree(copied, c.files.etcdData) }
	if err := c.restart(ctx, save); err != nil {
		return nil, fmt.Errorf("control plane %q: making a snapshot: %w", c.options.Name, err)
	}
	return func(ctx context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		putBack := func() error { return replaceTree(c.files.etcdData, copied) }
		if err := c.restart(ctx, putBack); err != nil {
			return fmt.Errorf("control plane %q: going back to a snapshot: %w", c.options.Name, err)
		}
		return nil
	}, nil
}

// CopyTo copies the state and the certificates to a new folder. A control plane that is started in
// it is a second cluster restored from a backup of this one: all objects have the same uids.
// Copying restarts the control plane as Snapshot does.
func (c *ControlPlane) CopyTo(ctx context.Context, dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	copyAll := func() error {
		if err := replaceTree(dir, c.options.Dir); err != nil {
			return err
		}
		return os.Chmod(filesIn(dir).etcdData, 0o700) // etcd refuses other modes
	}
	if err := c.restart(ctx, copyAll); err != nil {
		return fmt.Errorf("control plane %q: copying it: %w", c.options.Name, err)
	}
	return nil
}

// replaceTree replaces the folder to with a copy of the folder from.
func replaceTree(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(to, 0o700) // etcd refuses other modes
}
