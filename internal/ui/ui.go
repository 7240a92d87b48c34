// Package ui runs the page: it follows a clusterset, or shows a file, and serves what it knows to
// browsers on the same machine.
package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/gather"
	"github.com/seamark-dev/seamark/internal/ui/archive"
	"github.com/seamark-dev/seamark/internal/ui/fleet"
	"github.com/seamark-dev/seamark/internal/ui/server"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

// DefaultPort is the port of the page, unless it is taken.
const DefaultPort = 9447

// Options of a page.
type Options struct {
	// Listener is where it listens; Token is what viewers need.
	Listener net.Listener
	Token    string
}

// Follow shows the clusterset of the fleet's clusters until the context ends.
func Follow(ctx context.Context, o Options, f fleet.Options) error {
	hub := server.NewHub(state.NewHistory(&state.Snapshot{}))
	f.Publish = hub.Publish
	follower := fleet.New(f)
	s := server.New(server.Options{Hub: hub, Token: o.Token, Live: true, Explain: follower.Explain, Viewed: follower.View, Clean: gather.Clean})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var following sync.WaitGroup
	following.Go(func() { follower.Run(ctx) })
	err := s.Serve(ctx, o.Listener)
	cancel()
	following.Wait()
	return err
}

// Show shows a file until the context ends.
func Show(ctx context.Context, o Options, file *state.File) error {
	s := server.New(server.Options{
		Hub: server.NewHub(file.History), Token: o.Token, Clean: gather.Clean,
		Explain: func(_ context.Context, key types.NamespacedName) (explain.Report, bool) {
			report, ok := file.Reports[key.String()]
			return report, ok
		},
	})
	return s.Serve(ctx, o.Listener)
}

// Open reads a file that the page saved, or an archive of seamark gather.
func Open(path string) (*state.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", errors.Unwrap(err))
	}
	defer file.Close() //nolint:errcheck // it was only read
	content := bufio.NewReaderSize(file, 64<<10)
	open := state.ReadFile
	if archive.IsArchive(content) {
		open = archive.Open
	}
	opened, err := open(content)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be shown: %w", path, err)
	}
	return opened, nil
}
