// Package image makes container images out of the repository's own programs, without Docker and without a base image: static binaries,
// an account that is not root, and nothing else. The same sources, Go version and version string give the same digest wherever and
// whenever an image is built.
package image

import (
	"fmt"
	"path/filepath"
)

// Repository is the name of the image of the daemons, without a tag.
const Repository = "seamark.dev/seamark"

// WorkloadRepository is the name of the image of the test workload, without a tag.
const WorkloadRepository = "seamark.dev/workload"

// UserID is the account that images run as unless a pod says otherwise.
const UserID = 65532

// BinDir is where the programs are in an image; it is the only folder on its PATH.
const BinDir = "/usr/local/bin"

// Recipe says what goes into an image.
type Recipe struct {
	// Repository is the name of the image, without a tag.
	Repository string
	// Programs are the folders of the main packages, relative to the top of the checkout. Each becomes a file in BinDir that is
	// named like its folder.
	Programs []string
	// Entrypoint and Command are what a container runs that does not say.
	Entrypoint, Command []string
	// Description is shown by tools that show labels.
	Description string
}

// daemons are the programs that run in clusters, in the order of their importance.
var daemons = []string{"cmd/seamark-agent", "cmd/seamark-dns", "cmd/seamark-proxy"}

// Daemons is the recipe of the image that clusters run: one image with every daemon that the checkout at root holds, so that there is one
// thing to build, load and pin. A pod names the program it runs. It fails when there is none.
func Daemons(root string) (Recipe, error) {
	r := Recipe{Repository: Repository, Description: "Seamark: agent, DNS server and data plane of a clusterset"}
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

// Holds tells whether a program of this name is in the image.
func (r Recipe) Holds(program string) bool {
	for _, p := range r.Programs {
		if filepath.Base(p) == program {
			return true
		}
	}
	return false
}

// Workload is the recipe of what tests and the demo run in pods: server, client, DNS lookup, and a pause that also holds pod sandboxes.
func Workload() Recipe {
	return Recipe{
		Repository:  WorkloadRepository,
		Programs:    []string{"test/e2e/workload"},
		Entrypoint:  []string{"workload"},
		Command:     []string{"pause"},
		Description: "Seamark: server, client and lookups for tests",
	}
}
