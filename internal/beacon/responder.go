// Package beacon is seamark-beacon: it answers the probes of other clusters, so that they can tell
// whether they reach this one. It reads a folder and one UDP socket, and needs neither the API
// server nor the agent.
package beacon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
)

const (
	// rereadEvery is how often the folder is read. The kubelet replaces its content when the Secret
	// changes.
	rereadEvery = time.Second
	// errorPause keeps an error of the socket that lasts from taking the whole CPU.
	errorPause = 10 * time.Millisecond
	// answersPerSecond bounds the answers of one beacon. A thousand clusters probe it twice a second,
	// and up to ten times when they have not heard from it.
	answersPerSecond = 10_000
)

// Options are the settings of a beacon.
type Options struct {
	// Listen is the UDP address of the beacon.
	Listen string
	// Folder holds the cluster's id and key.
	Folder string
	// DrainFor is how long the beacon goes on answering after it was told to end: other clusters
	// learn later than this one that the pod is going away.
	DrainFor time.Duration
	// OnClusterID, if it is set, is called with the id of the cluster when that is known or changes.
	OnClusterID func(id string)
	Log         *slog.Logger
}

// Responder answers probes.
type Responder struct {
	Options
	socket   net.PacketConn
	identity atomic.Pointer[wire.Identity]
	answers  *rate.Limiter
}

// Open opens the socket of a beacon.
func Open(o Options) (*Responder, error) {
	var config net.ListenConfig
	socket, err := config.ListenPacket(context.Background(), "udp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("open the socket for probes: %w", err)
	}
	r := &Responder{Options: o, socket: socket, answers: rate.NewLimiter(answersPerSecond, answersPerSecond)}
	r.reread()
	return r, nil
}

// Address returns the address at which the beacon answers.
func (r *Responder) Address() net.Addr { return r.socket.LocalAddr() }

// Run answers probes until ctx has ended and DrainFor has passed.
func (r *Responder) Run(ctx context.Context) error {
	ended := make(chan struct{})
	defer close(ended)
	go r.follow(ctx, ended)
	buffer := make([]byte, wire.ProbeSize+1) // a longer datagram is cut, and has the wrong length still
	for {
		n, from, err := r.socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(errorPause) // the network of this node may be down
			continue
		}
		identity := r.identity.Load()
		if identity == nil {
			continue
		}
		// The limit comes last, so that strangers do not count for it.
		if answer, ok := identity.Answer(buffer[:n]); ok && r.answers.Allow() {
			_, _ = r.socket.WriteTo(answer, from) // a lost answer is what the prober expects of a network
		}
	}
}

// follow rereads the folder until ctx has ended, and closes the socket when the beacon has drained.
func (r *Responder) follow(ctx context.Context, ended <-chan struct{}) {
	ticker := time.NewTicker(rereadEvery)
	defer ticker.Stop()
	defer func() { _ = r.socket.Close() }()
	stop := ctx.Done()
	var drained <-chan time.Time
	for {
		select {
		case <-ended:
			return
		case <-stop:
			r.Log.Info("ending", "answersFor", r.DrainFor)
			stop, drained = nil, time.After(r.DrainFor)
		case <-drained:
			return
		case <-ticker.C:
			r.reread()
		}
	}
}

// reread reads the identity. A folder that has none any more leaves the last one in place: that its
// Secret is missing does not make the cluster unreachable, and the agent restores the Secret.
func (r *Responder) reread() {
	id, identity, err := readIdentity(r.Folder)
	known := r.identity.Load()
	if err == nil && (known == nil || *known != identity) && r.OnClusterID != nil {
		r.OnClusterID(id)
	}
	switch {
	case err != nil && known == nil:
		r.Log.Debug("no probe is answered: the cluster's id and key are not there yet", "error", err)
	case err == nil && known == nil:
		r.identity.Store(&identity)
		r.Log.Info("answering probes", "address", r.Address().String())
	case err == nil && *known != identity:
		r.identity.Store(&identity)
		r.Log.Info("the id or the key of the cluster changed")
	}
}

// readIdentity reads the cluster's id and key from a folder. Its errors contain neither.
func readIdentity(folder string) (id string, identity wire.Identity, err error) {
	name, err := os.ReadFile(filepath.Join(folder, wire.ClusterIDFile))
	if err != nil {
		return "", identity, err
	}
	raw, err := os.ReadFile(filepath.Join(folder, wire.KeyFile))
	if err != nil {
		return "", identity, err
	}
	key, ok := wire.ParseKey(raw)
	if id = strings.TrimSpace(string(name)); ok && id != "" {
		return id, wire.NewIdentity(id, key), nil
	}
	return "", identity, fmt.Errorf("%s holds no id and key of a cluster", folder)
}
