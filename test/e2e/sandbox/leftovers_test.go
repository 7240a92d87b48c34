package sandbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/seamark-dev/seamark/internal/sandbox"
)

// slotOf returns the slot of the sandbox, whose number is in the names of its links.
func slotOf(t *testing.T) int {
	t.Helper()
	var state struct{ Slot *int }
	text, err := os.ReadFile(filepath.Join(os.Getenv(sandbox.DirEnv), sandboxName, "sandbox.json"))
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil || state.Slot == nil {
		t.Fatalf("read the state of the sandbox: %v: %s", err, text)
	}
	bridge := fmt.Sprintf("seamark%d", *state.Slot)
	if _, err := netlink.LinkByName(bridge); err != nil {
		t.Errorf("bridge %s of the running sandbox: %v", bridge, err)
	}
	return *state.Slot
}

// leftovers returns what is left of the sandbox on the machine: processes, mounts, links, network
// namespaces and files. Only those with its name or number count, because other programs use the
// machine too.
func leftovers(t *testing.T, slot int) []string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, sandboxName) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == fmt.Sprintf("seamark%d", slot) || strings.HasPrefix(name, fmt.Sprintf("smk%dn", slot)) {
			found = append(found, "link "+name)
		}
	}
	for _, pattern := range []string{
		"/run/netns/*" + sandboxName + "*", "/var/lib/cni/results/*" + sandboxName + "*", "/run/seamark-sandbox/" + sandboxName + "*",
		filepath.Join(os.Getenv(sandbox.DirEnv), "*"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return append(found, leftProcesses(t)...)
}

// leftProcesses returns the processes that have the sandbox's folder in their environment,
// arguments or mounts.
func leftProcesses(t *testing.T) (found []string) {
	t.Helper()
	dir := filepath.Join(os.Getenv(sandbox.DirEnv), sandboxName)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"environ", "cmdline", "mountinfo"} {
			text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), file))
			if err == nil && bytes.Contains(text, []byte(dir+"/")) {
				found = append(found, "process "+entry.Name()+", found by its "+file)
			}
		}
	}
	return found
}
