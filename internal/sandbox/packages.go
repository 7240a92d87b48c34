//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the programs of the machine that clusters need, and their Debian packages.
var programs = []struct{ name, debian string }{
	{"runc", "runc"}, {"nft", "nftables"}, {"ip", "iproute2"}, {"conntrack", "conntrack"}, {"mount", "mount"},
}

// ensurePackages installs missing packages with apt. On other systems it fails and names them.
func ensurePackages(ctx context.Context, r *report) error {
	missing := missingPackages(func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, ", ")
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return fmt.Errorf("the sandbox needs %s (names of Debian packages): install them and run the command again", list)
	}
	return r.step("installed "+list+" with apt-get", func() error {
		for _, args := range [][]string{{"update", "-q"}, slices.Concat([]string{"install", "-qy", "--no-install-recommends"}, missing)} {
			cmd := exec.CommandContext(ctx, apt, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if output, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("install %s: apt-get %s: %w\n%s", list, args[0], err, strings.TrimSpace(string(output)))
			}
		}
		return nil
	})
}

// missingPackages returns the packages whose programs are not installed.
func missingPackages(installed func(program string) bool) []string {
	var missing []string
	for _, p := range programs {
		if !installed(p.name) {
			missing = append(missing, p.debian)
		}
	}
	return missing
}

// goInstaller is the folder of Go's installer, which is not on the PATH of sudo.
const goInstaller = "/usr/local/go/bin"

// ensureGo adds the folder of Go's installer to the PATH when Go is only there.
func ensureGo(installer string) error {
	if _, err := exec.LookPath("go"); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(installer, "go")); err != nil {
		return errors.New("the go command is needed to build the programs of the clusters and is not on the PATH: install it (https://go.dev/dl); " +
			"if it is installed, keep your PATH with sudo env PATH=$PATH")
	}
	return os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+installer)
}

// tunables are sysctls of the whole machine that kubelet changes when it starts.
var tunables = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// tunablesFile holds their values before the first sandbox since the machine started.
var tunablesFile = filepath.Join(runRoot, "tunables.json")

// saveTunables saves the values unless they are saved already.
func saveTunables() error {
	if _, err := os.Stat(tunablesFile); err == nil {
		return nil
	}
	values := map[string]string{}
	for _, name := range tunables {
		text, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err == nil { // otherwise this kernel does not have it
			values[name] = strings.TrimSpace(string(text))
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return writeFile(tunablesFile, text)
}

// restoreTunables restores the values when the last sandbox was removed.
func restoreTunables() error {
	others, err := filepath.Glob(filepath.Join(runRoot, "*", "owner"))
	if err != nil || len(others) > 0 {
		return err
	}
	text, err := os.ReadFile(tunablesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	var errs []error
	for name, value := range values {
		errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0))
	}
	return errors.Join(append(errs, os.Remove(tunablesFile))...)
}
