package sandbox

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// inNetns runs f on a thread in a network namespace; processes that f starts are in it. Unlike `ip
// netns exec` it mounts nothing, so kubelet finds its cgroups.
func inNetns(name string, f func() error) error {
	target, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer target.Close() //nolint:errcheck // only read
	return onThread(func() error {
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", name, err)
		}
		return f()
	})
}

// onThread runs f on a thread of its own and restores the thread's network namespace. A thread that
// cannot be restored ends.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = f()
		back := netns.Set(home)
		_ = home.Close()
		if back == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with this goroutine
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}
