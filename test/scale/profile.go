package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
)

// profile writes CPU profiles of the broker's API server and of the simulation, if they are wanted.
// name says what happens meanwhile.
func (e *environment) profile(ctx context.Context, name string, duration time.Duration) error {
	if e.profiles == "" {
		return nil
	}
	name = fmt.Sprintf("%s-%d", name, len(e.members))
	var simulation, server error
	var both sync.WaitGroup
	both.Go(func() {
		simulation = profileSelf(ctx, filepath.Join(e.profiles, "simulation-"+name+".pprof"), duration)
	})
	both.Go(func() { server = e.profileBroker(ctx, filepath.Join(e.profiles, "broker-"+name+".pprof"), duration) })
	both.Wait()
	return errors.Join(simulation, server)
}

func profileSelf(ctx context.Context, path string, duration time.Duration) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return sleep(ctx, duration)
}

func (e *environment) profileBroker(ctx context.Context, path string, duration time.Duration) error {
	api, err := discovery.NewDiscoveryClientForConfig(e.planes[0].DirectConfig())
	if err != nil {
		return err
	}
	seconds := strconv.Itoa(int(duration.Seconds()))
	content, err := api.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).Timeout(2*duration + time.Minute).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("profile the broker's API server: %w", err)
	}
	return os.WriteFile(path, content, 0o600)
}
