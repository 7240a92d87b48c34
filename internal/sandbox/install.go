//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// install joins the clusters into a clusterset with the broker on the first. It runs the commands
// that users run, so the sandbox is installed as a user's clusters are. Run again, they change
// nothing.
func (s *Sandbox) install(ctx context.Context, r *report, seamark func(ctx context.Context, args ...string) error) error {
	broker := s.plan.clusters[0]
	in := func(c cluster, args ...string) []string {
		return append([]string{"--kubeconfig", s.Kubeconfig(), "--context", c.name}, args...)
	}
	err := r.step("broker is deployed on "+broker.name, func() error { return seamark(ctx, in(broker, "broker", "deploy")...) })
	if err != nil {
		return err
	}
	join := func(ctx context.Context, c cluster) error {
		return seamark(ctx, in(c, "join", "--broker-context", broker.name, "--broker-server", broker.server(), "--clusterid", c.name,
			"--dataplane", string(s.state.DataPlane), "--image", s.Image())...)
	}
	err = s.forEach(ctx, func(ctx context.Context, c cluster) error {
		err := r.step(c.name+": Seamark is installed and has joined the broker", func() error { return join(ctx, c) })
		if err != nil {
			return err
		}
		return r.step(c.name+": cluster DNS answers for clusterset.local", func() error { return c.awaitClusterset(ctx) })
	})
	if err != nil || len(s.plan.clusters) == 1 {
		return err
	}
	// The first to join did not know the pods of the others.
	return s.forEach(ctx, func(ctx context.Context, c cluster) error {
		return r.step(c.name+": cluster DNS forwards reverse names of the other clusters' pods", func() error {
			for _, other := range s.plan.clusters {
				if err := broker.awaitRanges(ctx, other); err != nil {
					return err
				}
			}
			return join(ctx, c)
		})
	})
}

// awaitRanges waits until a member has published its pod ranges on this broker.
func (c cluster) awaitRanges(ctx context.Context, member cluster) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/%s/namespaces/%s/clusters/%s", v1alpha1.GroupVersion, objects.DefaultNamespace, member.name)
	return c.await(ctx, apiserver, "the pod ranges of "+member.name, func(ctx context.Context) error {
		raw, err := client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return err
		}
		published := v1alpha1.Cluster{}
		if err := json.Unmarshal(raw, &published); err != nil {
			return err
		}
		if len(published.Status.PodCIDRs) < len(member.podCIDRs) {
			return fmt.Errorf("it has published %v", published.Status.PodCIDRs)
		}
		return nil
	})
}
