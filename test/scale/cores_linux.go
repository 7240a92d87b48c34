package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// yieldCores leaves this process only what other processes do not need of the cores, takeCores
// gives it its share again, which only root can.
func yieldCores() error { return schedule(unix.SCHED_IDLE) }
func takeCores() error  { return schedule(unix.SCHED_NORMAL) }

// schedule sets the scheduling policy of all threads of this process. Threads that start later
// inherit it.
func schedule(policy uint32) error {
	for changed := true; changed; {
		changed = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			attributes, err := unix.SchedGetAttr(id, 0)
			if errors.Is(err, unix.ESRCH) || err == nil && attributes.Policy == policy {
				continue // it has ended, or is done
			}
			if err != nil {
				return fmt.Errorf("read the scheduling policy of a thread: %w", err)
			}
			changed = true // a thread may have started another one before its policy changed
			attributes.Policy = policy
			if err := unix.SchedSetAttr(id, attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set the scheduling policy of a thread, which takes root: %w", err)
			}
		}
	}
	return nil
}
