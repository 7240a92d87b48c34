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

// profileFor is how long the CPU is profiled.
const profileFor = 15 * time.Second

// profile writes CPU profiles of the broker's API server and of the simulation to a folder. name
// says what happens meanwhile.
func (e *environment) profile(ctx context.Context, dir, name string) error {
	name = fmt.Sprintf("%s-%d", name, len(e.members))
	var simulation, server error
	var both sync.WaitGroup
	both.Go(func() { simulation = profileSelf(ctx, filepath.Join(dir, "simulation-"+name+".pprof")) })
	both.Go(func() { server = e.profileBroker(ctx, filepath.Join(dir, "broker-"+name+".pprof")) })
	both.Wait()
	return errors.Join(simulation, server)
}

func profileSelf(ctx context.Context, path string) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return sleep(ctx, profileFor)
}

func (e *environment) profileBroker(ctx context.Context, path string) error {
	api, err := discovery.NewDiscoveryClientForConfig(e.planes[0].DirectConfig())
	if err != nil {
		return err
	}
	seconds := strconv.Itoa(int(profileFor.Seconds()))
	content, err := api.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).Timeout(2 * profileFor).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("profile the broker's API server: %w", err)
	}
	return os.WriteFile(path, content, 0o600)
}
