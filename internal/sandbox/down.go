//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Down removes everything of a sandbox: processes, containers, mounts, links, network namespaces,
// control groups and files. Only the caches of built programs stay. It works on a sandbox in any
// state. It fails with ErrNone when there is no sandbox of the name. When something cannot be
// removed, Down removes the rest, returns an error and can be called again.
func Down(ctx context.Context, name string, progress io.Writer) error {
	if err := needRoot(); err != nil {
		return err
	}
	r := newReport(progress)
	unlock, err := lock(ctx, name, func() { r.printf("waiting for another command on sandbox %s to finish", name) })
	if err != nil {
		return err
	}
	defer unlock()
	s, err := Open(name)
	if errors.Is(err, ErrNone) {
		return errors.Join(err, os.Remove(lockFile(name)))
	}
	if err != nil {
		return err
	}
	if err := s.down(ctx, r); err != nil {
		return fmt.Errorf("sandbox %s is not removed completely (run seamark sandbox down again): %w", name, err)
	}
	err = os.Remove(lockFile(name))
	for _, dir := range []string{runRoot, filepath.Dir(s.plan.dir)} {
		_ = os.Remove(dir) // fails while there are other sandboxes
	}
	return err
}

func (s *Sandbox) down(ctx context.Context, r *report) error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.plan.clusters))
	for i, c := range s.plan.clusters {
		wg.Go(func() { errs[i] = r.step(c.name+": processes and mounts are removed", c.stop) })
	}
	wg.Wait()
	errs = append(errs, r.step("network is removed", s.plan.disconnect))
	if err := errors.Join(errs...); err != nil {
		return err // the state stays, so that the next Down finds the rest
	}
	// Nothing is mounted below the folders now, so this removes only files of the sandbox.
	return r.step("files are removed", func() error {
		if err := errors.Join(os.RemoveAll(s.plan.runDir), os.RemoveAll(s.plan.dir)); err != nil {
			return err
		}
		return withMachineLock(ctx, restoreTunables)
	})
}

// stop kills the processes of a cluster, because their state is not needed: first those that would
// restart others, then all that carry its mark, then those in its containers. Then it removes
// mounts, control groups and files outside the cluster's folder.
func (c cluster) stop() error {
	groups := c.controlGroups()
	var errs []error
	for _, name := range []string{kubelet, containerd} {
		if p, alive := c.running(name); alive {
			errs = append(errs, p.kill(0))
		}
	}
	errs = append(errs, killAll(c.carriesMark), killAll(c.inContainer))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	errs = []error{unmountBelow(c.dir), unmountBelow(c.runDir), removeGroups(groups), c.removeHostFiles()}
	return errors.Join(errs...)
}

// killAll kills all processes for which belongs returns true. They may start others meanwhile, so
// it repeats until there are none.
func killAll(belongs func(proc string) bool) error {
	const rounds = 20
	for range rounds {
		found, err := processes(belongs)
		if err != nil || len(found) == 0 {
			return err
		}
		var errs []error
		for _, p := range found {
			errs = append(errs, p.kill(0))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return errors.New("new processes keep being started")
}

// unmountBelow unmounts everything at or below a folder, the last mounted first.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // unmounted together with another one
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

// unescape decodes the octal escapes of mountinfo, such as \040 for a space.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// controlGroups returns the folders of the containers' control groups, in every hierarchy. They are
// named after the containers, whose ids are in containerd's folder of tasks.
func (c cluster) controlGroups() []string {
	tasks, _ := filepath.Glob(filepath.Join(c.runDir, "containerd", "io.containerd.runtime.v2.task", containerdNamespace, "*"))
	var groups []string
	for _, task := range tasks {
		for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // version 2, version 1
			found, _ := filepath.Glob(filepath.Join(hierarchy, containerdNamespace, filepath.Base(task)))
			groups = append(groups, found...)
		}
	}
	return groups
}

// removeGroups removes control groups whose processes have ended, and the parent group if it is
// empty then. Other containers on the machine may use the parent.
func removeGroups(groups []string) error {
	var errs []error
	for _, group := range groups {
		err := unix.Rmdir(group)
		for deadline := time.Now().Add(5 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = unix.Rmdir(group) {
			time.Sleep(10 * time.Millisecond) // the kernel is still removing a process that ended
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove control group %s: %w", group, err))
		}
		_ = unix.Rmdir(filepath.Dir(group)) // fails while it is not empty
	}
	return errors.Join(errs...)
}

// removeHostFiles removes what kubelet and the CNI write to fixed folders of the machine: links to
// the logs of containers, and the CNI library's record of each interface.
func (c cluster) removeHostFiles() error {
	var errs []error
	links, _ := filepath.Glob("/var/log/containers/*.log") // a constant pattern
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, c.dir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	results, _ := filepath.Glob("/var/lib/cni/results/" + c.networkName() + "-*") // names hold no special characters
	for _, result := range results {
		errs = append(errs, os.Remove(result))
	}
	return errors.Join(errs...)
}
