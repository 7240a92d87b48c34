package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// errJoinedAgain ends the rest.
var errJoinedAgain = errors.New("this cluster joined again")

// restUntilJoined withdraws what this cluster has as a member, and then only serves metrics and
// probes until the cluster joins again. Every replica does so: the second one finds nothing to
// withdraw.
func restUntilJoined(ctx context.Context, o Options, removed *member.RemovedError) error {
	o.ReportClusterID(removed.ClusterID)
	o.Log.Error(removed, "withdrawing and resting")
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	c, err := client.New(o.Local, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return fmt.Errorf("connect to this cluster: %w", err)
	}
	metrics := telemetry.NewResting()
	if err := metrics.Register(ctrlmetrics.Registry); err != nil {
		return err
	}
	defer metrics.Unregister(ctrlmetrics.Registry)
	resting, err := ctrl.NewManager(o.Local, ctrl.Options{
		Scheme: scheme, MapperProvider: staticMapper, Logger: o.Log, Cache: cache.Options{},
		Metrics:                metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.ProbeAddress, PprofBindAddress: o.PprofAddress,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	err = errors.Join(
		resting.Add(manager.RunnableFunc(func(ctx context.Context) error { return withdrawAndWait(ctx, o, c, removed) })),
		resting.AddHealthzCheck("process", healthz.Ping),
		resting.AddReadyzCheck("membership", func(*http.Request) error { return removed }),
	)
	if err != nil {
		return err
	}
	if err := resting.Start(ctx); !errors.Is(err, errJoinedAgain) {
		return err
	}
	o.Log.Info("this cluster joined a clusterset again")
	return nil
}

// withdrawAndWait withdraws, retrying what fails, until the membership Secret is no longer marked.
func withdrawAndWait(ctx context.Context, o Options, c client.Client, removed *member.RemovedError) error {
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
		secret := &corev1.Secret{}
		err := c.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
		if apierrors.IsNotFound(err) || (err == nil && withdrawn && objects.RemovedAt(secret) == "") {
			return errJoinedAgain // or left; the agent looks again
		}
	}
}
