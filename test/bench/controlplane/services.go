package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// thousands is how many thousand Services are created by creatingServices.
const thousands = 6

// creatingServices measures what an API server itself needs for Services as their number grows,
// without Seamark, and compares it with as many slices. Derived Services cannot be faster than
// that. It uses the broker's API server, which has no Services of others.
func creatingServices(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	if size.scale == 0 || !e.plane.DerivesService {
		return nil
	}
	r.Say("%d,000 plain Services", thousands)
	for k := range thousands {
		services, err := e.createThousand(ctx, func(i int) client.Object {
			return fleet.NewService(metav1.NamespaceDefault, fmt.Sprintf("plain-%d-%d", k, i))
		})
		if err != nil {
			return err
		}
		slices, err := e.createThousand(ctx, func(i int) client.Object {
			slice := bareSlice(fmt.Sprintf("plain-%d-%d", k, i), "10.0.0.1")
			slice.Namespace = metav1.NamespaceDefault
			return slice
		})
		if err != nil {
			return err
		}
		r.Add(report.Row{
			Name:  fmt.Sprintf("1,000 Services created on an API server that has %d, compared with 1,000 slices", 1000*k),
			Value: services.Seconds(), Unit: "s", Peers: []float64{slices.Seconds()},
		})
	}
	return nil
}

// createThousand creates a thousand objects on the broker's API server.
func (e *environment) createThousand(ctx context.Context, object func(i int) client.Object) (time.Duration, error) {
	start := time.Now()
	err := harness.Parallel(workers, 1000, func(i int) error { return e.broker.client.Create(ctx, object(i)) })
	return time.Since(start), err
}
