package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// MayJoin returns an error if the cluster must not become a member now: the agent would write the
// ServiceImports of a Lighthouse that does not know of the move.
func MayJoin(ctx context.Context, c client.Client) error {
	var f Facts
	if err := readPhase(ctx, c, &f); err != nil {
		return err
	}
	if err := readSubmariner(ctx, c, &f); err != nil {
		return err
	}
	if f.Submariner != nil && f.Submariner.DiscoveryEnabled && f.Phase == "" {
		return errors.New("this cluster is served by Submariner Lighthouse, and Seamark's agent would write the same ServiceImports: " +
			"run seamark migrate lighthouse start first (see docs/migrating-from-lighthouse.md)")
	}
	return nil
}

// MayLeave returns an error if the cluster must not leave its clusterset now: its DNS would lose
// the services, or other members their broker.
func MayLeave(ctx context.Context, c client.Client) error {
	var f Facts
	if err := readPhase(ctx, c, &f); err != nil {
		return err
	}
	switch f.Phase {
	case v1alpha1.MigrationSwitched, v1alpha1.MigrationStopping, v1alpha1.MigrationAdopting, v1alpha1.MigrationReturning:
		return fmt.Errorf("this cluster is in phase %s of its move from Submariner Lighthouse: run seamark migrate lighthouse back "+
			"until it is in phase shadow, then leave", f.Phase)
	case "", v1alpha1.MigrationShadow, v1alpha1.MigrationFinished:
	}
	return mayLeaveBroker(ctx, c)
}

// mayLeaveBroker returns an error if the cluster has a broker that other members use, and
// Submariner. Its operator removes the version of the MCS API that the broker needs, at each of its
// starts, and the agent of this cluster restores it.
func mayLeaveBroker(ctx context.Context, c client.Client) error {
	var f Facts
	if err := readSubmariner(ctx, c, &f); err != nil || f.Submariner == nil {
		return err
	}
	members := &v1alpha1.ClusterList{}
	if err := c.List(ctx, members); err != nil {
		if absent(err) {
			return nil
		}
		return fmt.Errorf("list the members of a broker on this cluster: %w", err)
	}
	var others []string
	for i := range members.Items {
		if id := members.Items[i].Name; id != f.Submariner.ClusterID {
			others = append(others, id)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the broker of other members is on this cluster (%s), and Submariner's operator removes v1beta1 of the MCS API, "+
		"which they need, at each of its starts: seamark-agent restores it here. Let the others leave first, "+
		"or remove them with seamark cluster remove",
		strings.Join(limit(others), ", "))
}

// LeavesDNS reports whether the cluster's DNS is left to Lighthouse until the switch.
func LeavesDNS(ctx context.Context, c client.Client) (bool, error) {
	var f Facts
	err := readPhase(ctx, c, &f)
	return f.Phase.LeavesObjects(), err
}
