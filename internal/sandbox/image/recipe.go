// Package image builds container images from the repository's programs, without Docker and without
// a base image: static binaries, an account that is not root, and nothing else. The same sources,
// Go version and version string always give the same digest.
package image

import (
	"fmt"
	"path/filepath"
)

// Repository is the name of the image of the daemons, without a tag.
const Repository = "seamark.dev/seamark"

// WorkloadRepository is the name of the image of the test workload, without a tag.
const WorkloadRepository = "seamark.dev/workload"

// UserID is the account that containers run as unless the pod sets another.
const UserID = 65532

// BinDir is where the programs are in an image; it is the only folder on its PATH.
const BinDir = "/usr/local/bin"

// Recipe describes an image.
type Recipe struct {
	// Repository is the name of the image, without a tag.
	Repository string
	// Programs are the folders of the main packages, relative to the top of the checkout. Each becomes
	// a file in BinDir that is named like its folder.
	Programs []string
	// Entrypoint and Command are the defaults of containers.
	Entrypoint, Command []string
	// Description is a label of the image.
	Description string
}

// daemons are the programs that run in clusters. The first is the default of the image.
var daemons = []string{"cmd/seamark-agent", "cmd/seamark-dns", "cmd/seamark-proxy", "cmd/seamark-beacon", "cmd/seamark-ui", "cmd/seamark-bridge"}

// Daemons returns the recipe of the image that clusters run: one image with every daemon in the
// checkout at root, so that there is one image to build, load and pin. A pod names the program it
// runs. Daemons fails when the checkout has none.
func Daemons(root string) (Recipe, error) {
	r := Recipe{Repository: Repository, Description: "Seamark: agent, DNS server, data plane, beacons, page and bridge of a clusterset"}
	for _, program := range daemons {
		sources, err := filepath.Glob(filepath.Join(root, program, "*.go"))
		if err != nil {
			return r, err
		}
		if len(sources) > 0 {
			r.Programs = append(r.Programs, program)
		}
	}
	if len(r.Programs) == 0 {
		return r, fmt.Errorf("none of %v is in %s: is it a checkout of Seamark?", daemons, root)
	}
	r.Entrypoint = []string{filepath.Base(r.Programs[0])}
	return r, nil
}

// Holds reports whether a program of this name is in the image.
func (r Recipe) Holds(program string) bool {
	for _, p := range r.Programs {
		if filepath.Base(p) == program {
			return true
		}
	}
	return false
}

// Workload returns the recipe of the image that tests and the demo run in pods: server, client, DNS
// lookup, and a pause that is also used for pod sandboxes.
func Workload() Recipe {
	return Recipe{
		Repository:  WorkloadRepository,
		Programs:    []string{"test/e2e/workload"},
		Entrypoint:  []string{"workload"},
		Command:     []string{"pause"},
		Description: "Seamark: server, client and lookups for tests",
	}
}
