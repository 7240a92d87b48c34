package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/objects"
)

// restInterval is how often a resting agent looks whether its cluster joined again.
const restInterval = 2 * time.Second

// waitingExportsInterval is how often an agent that waits for an invitation looks for
// ServiceExports that do not say so yet.
const waitingExportsInterval = 30 * time.Second

// errJoinedAgain ends the rest.
var errJoinedAgain = errors.New("this cluster joined again")

// restUntilJoined withdraws what this cluster has as a member, and then only serves metrics and
// probes until the cluster joins again. Every replica does so: the second one finds nothing to
// withdraw.
func restUntilJoined(ctx context.Context, o Options, removed *member.RemovedError) error {
	o.ReportClusterID(removed.ClusterID)
	o.Log.Error(removed, "withdrawing and resting")
	c, err := directClient(o)
	if err != nil {
		return err
	}
	ready := func(*http.Request) error { return removed }
	err = idle(ctx, o, telemetry.NewResting(), ready, func(ctx context.Context) error { return withdrawAndWait(ctx, o, c, removed) })
	if !errors.Is(err, errJoinedAgain) {
		return err
	}
	o.Log.Info("this cluster joined a clusterset again")
	return nil
}

// waitForInvitation serves metrics and probes until there is an invitation that makes the cluster a
// member. The agent is not ready meanwhile, and both its log and its probe say why.
func waitForInvitation(ctx context.Context, o Options, reason *member.NotMemberError) error {
	c, err := directClient(o)
	if err != nil {
		return err
	}
	var current atomic.Pointer[member.NotMemberError]
	current.Store(reason)
	ready := func(*http.Request) error { return current.Load() }
	memberships := &member.Memberships{Client: c, Log: o.Log}
	err = idle(ctx, o, telemetry.NewWaiting(), ready, func(ctx context.Context) error {
		logged, exportsAt := "", time.Time{}
		for {
			if current.Store(reason); reason.Error() != logged {
				logged = reason.Error()
				o.Log.Info("waiting for an invitation", "reason", logged)
			}
			if now := time.Now(); now.Sub(exportsAt) >= waitingExportsInterval {
				exportsAt = now
				if err := member.SetExportsNotMember(ctx, c, reason); err != nil && ctx.Err() == nil {
					o.Log.Error(err, "cannot report on the ServiceExports that this cluster is no member")
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(restInterval):
			}
			_, _, err := memberships.TakeUp(ctx)
			switch {
			case err == nil:
				return errJoinedAgain
			case errors.As(err, &reason):
			case ctx.Err() == nil:
				o.Log.Error(err, "cannot look for an invitation; retrying", "interval", restInterval)
			}
		}
	})
	if !errors.Is(err, errJoinedAgain) {
		return err
	}
	return nil
}

func directClient(o Options) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(o.Local, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to this cluster: %w", err)
	}
	return c, nil
}

// idle runs a task, with metrics and probes, instead of the agent of a member.
func idle(ctx context.Context, o Options, metrics *telemetry.Metrics, ready healthz.Checker, task manager.RunnableFunc) error {
	if err := metrics.Register(ctrlmetrics.Registry); err != nil {
		return err
	}
	defer metrics.Unregister(ctrlmetrics.Registry)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	resting, err := ctrl.NewManager(o.Local, ctrl.Options{
		Scheme: scheme, MapperProvider: staticMapper, Logger: o.Log, Cache: cache.Options{},
		Metrics:                metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.ProbeAddress, PprofBindAddress: o.PprofAddress,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	err = errors.Join(
		resting.Add(task), resting.AddHealthzCheck("process", healthz.Ping), resting.AddReadyzCheck("membership", ready))
	if err != nil {
		return err
	}
	return resting.Start(ctx)
}

// withdrawAndWait withdraws, retrying what fails, until the membership Secret is no longer marked.
func withdrawAndWait(ctx context.Context, o Options, c client.Client, removed *member.RemovedError) error {
	memberships := &member.Memberships{Client: c, Log: o.Log}
	withdrawn := false
	for {
		if !withdrawn {
			err := member.Withdraw(ctx, c, removed)
			if errors.Is(err, member.ErrAcceptedAgain) {
				return errJoinedAgain
			}
			if withdrawn = err == nil; withdrawn {
				o.Log.Info("withdrew the imports and the claim to be a member; resting until this cluster joins again")
			} else if ctx.Err() == nil {
				o.Log.Error(err, "cannot withdraw what this cluster had as a member; retrying", "interval", restInterval)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restInterval):
		}
		secret, _, err := memberships.TakeUp(ctx)
		var left *member.NotMemberError
		if errors.As(err, &left) || (err == nil && withdrawn && objects.RemovedAt(secret) == "") {
			return errJoinedAgain // or left; the agent looks again
		}
	}
}
