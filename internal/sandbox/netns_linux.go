package sandbox

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// inNetns runs f with the calling thread in a network namespace; processes that f starts are born there. Only the network changes:
// unlike `ip netns exec` nothing is mounted, and kubelet finds its cgroups.
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

// onThread runs f on a thread of its own that is thrown away when f may have changed it and it cannot be changed back.
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
			runtime.UnlockOSThread() // else the thread ends with this goroutine
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}
