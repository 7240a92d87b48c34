package harness

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Parallel calls f for 0…n-1 with this number of workers and returns all errors. A worker stops at
// its first error.
func Parallel(workers, n int, f func(i int) error) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	for range min(workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
