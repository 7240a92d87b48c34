package harness

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const statePrefix = "seamark-harness-"

// stateDir is the folder for the state of all control planes of this test binary. A lock on a file in it shows that its
// owner lives; the kernel drops the lock of a test binary that was killed, and the next one then removes the folder.
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

// removeAbandoned deletes the folders of test binaries that ended without cleaning up. A folder without a lock file was
// made this instant by somebody who is about to lock it, and stays.
func removeAbandoned(parent string) error {
	locks, err := filepath.Glob(filepath.Join(parent, statePrefix+"*", "lock"))
	if err != nil {
		return err
	}
	for _, path := range locks {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // gone meanwhile, or another user's
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
