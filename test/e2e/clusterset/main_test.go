//go:build linux

// Package clusterset_test holds Seamark to its word end to end: real clusters, real pods, real DNS, as `seamark join` installs it, with
// both data planes. It needs root, as the sandbox does.
package clusterset_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/test/e2e/bed"
)

// sandboxName is not the default, so that a developer's own sandbox does not mind.
const sandboxName = "e2e"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run keeps the state at a fixed place: what a killed run left is found by the next one.
func run(m *testing.M) int {
	base := filepath.Join(os.TempDir(), "seamark-e2e-clusterset")
	ctx := context.Background()
	if err := errors.Join(os.Setenv(sandbox.DirEnv, base), bed.Down(ctx, sandboxName, os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(bed.Down(ctx, sandboxName, os.Stderr), os.RemoveAll(base)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// world is a sandbox of three clusters. The first holds the broker and serves, the second serves, in the third is the client.
type world struct {
	*testing.T
	*bed.Bed
	one, two, three string
	dataPlane       v1alpha1.DataPlane
}

// TestClusterset runs everything on one sandbox after another.
func TestClusterset(t *testing.T) {
	for _, o := range []sandbox.Options{
		{DataPlane: v1alpha1.DataPlaneService, Family: sandbox.IPv4},
		{DataPlane: v1alpha1.DataPlaneNFTables, Family: sandbox.Dual},
	} {
		t.Run(string(o.DataPlane)+"-"+string(o.Family), func(t *testing.T) {
			o.Name, o.Clusters, o.Progress = sandboxName, 3, testLog{t}
			b, err := bed.Up(t.Context(), t.TempDir(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := bed.Down(context.Background(), sandboxName, testLog{t}); err != nil {
					t.Error(err)
				}
			}()
			names := b.Clusters()
			w := &world{T: t, Bed: b, one: names[0], two: names[1], three: names[2], dataPlane: o.DataPlane}
			for _, step := range []struct {
				name string
				run  func(*world)
			}{
				{"QuickStart", quickStart},
				{"ImportedServiceIsReached", imported},
				{"LocalServiceOfTheSameNameIsNotAffected", localNotAffected},
				{"BothClustersAnswer", both},
				{"PodsOfStatefulSetsHaveNames", statefulSet},
				{"UDP", udp},
				{"SessionAffinity", affinity},
				{"EveryPanelOfTheDashboardHasData", everyPanelHasData},
				{"RollingRestart", rollingRestart},
				{"Upgrade", upgrade},
				{"Failover", failover},
				{"LogsNameTheClusterAndRepeatNothing", logs},
				{"LeaveAndRejoin", leaveAndRejoin},
				{"Uninstall", uninstall},
			} {
				ok := t.Run(step.name, func(t *testing.T) {
					inner := *w
					inner.T = t
					step.run(&inner)
				})
				if !ok {
					return // what follows builds on it
				}
			}
		})
	}
}

// testLog sends progress to the log of a test.
type testLog struct{ t *testing.T }

func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) kubectl(cluster string, args ...string) string {
	w.Helper()
	text, err := w.Kubectl(w.Context(), cluster, args...)
	w.must(err)
	return text
}

func (w *world) seamark(args ...string) string {
	w.Helper()
	text, err := w.Seamark(w.Context(), args...)
	w.must(err)
	return text
}

// call sends requests from the client in the third cluster.
func (w *world) call(target string, args ...string) bed.Tally {
	w.Helper()
	tally, err := w.Call(w.Context(), w.three, "shop", "client", target, args...)
	w.must(err)
	return tally
}

func (w *world) lookup(name, kind string) []string {
	w.Helper()
	answers, err := w.Lookup(w.Context(), w.three, "shop", "client", name, kind)
	w.must(err)
	return answers
}

// eventually asks until there is no error.
func (w *world) eventually(what string, patience time.Duration, ask func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		select {
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

const patience = 90 * time.Second
