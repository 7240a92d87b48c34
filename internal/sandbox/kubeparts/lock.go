package kubeparts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lock locks the file at path and returns the function that unlocks it. While another process holds
// the lock, it prints so and waits. The kernel releases the lock of a process that ends, so it is
// never stale. The file stays: after deleting it, two processes could hold locks on two files of
// the same name.
func lock(ctx context.Context, progress io.Writer, path, what string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	started := time.Now()
	var reported time.Time
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if time.Since(reported) >= progressInterval {
			printf(progress, "%s: waiting for another process that is building it (%s)", what, seconds(time.Since(started)))
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another process to build %s: %w", what, context.Cause(ctx)), file.Close())
		case <-retry.C:
		}
	}
}
