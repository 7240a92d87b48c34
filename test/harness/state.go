package harness

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const statePrefix = "seamark-harness-"

// stateDir is the folder for the state of all control planes of this test binary. The binary holds
// a lock on a file in it. The kernel releases the lock of a test binary that was killed, and the
// next one then removes the folder.
type stateDir struct {
	path string
	lock *os.File
}

func newStateDir(parent string) (*stateDir, error) {
	if err := removeAbandoned(parent); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, statePrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &stateDir{path, lock}, nil
}

func (s *stateDir) remove() error {
	return errors.Join(os.RemoveAll(s.path), s.lock.Close())
}

// removeAbandoned removes the folders of test binaries that ended without cleanup. A folder without
// a lock file stays: another test binary has just created it and will lock it.
func removeAbandoned(parent string) error {
	locks, err := filepath.Glob(filepath.Join(parent, statePrefix+"*", "lock"))
	if err != nil {
		return err
	}
	for _, path := range locks {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // removed meanwhile, or owned by another user
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.RemoveAll(filepath.Dir(path))
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	return nil
}
