//go:build linux

package sandbox

import "context"

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
	return s.forEach(ctx, func(ctx context.Context, c cluster) error {
		err := r.step(c.name+": Seamark is installed and has joined the broker", func() error {
			return seamark(ctx, in(c, "join", "--broker-context", broker.name, "--broker-server", broker.server(), "--clusterid", c.name,
				"--dataplane", string(s.state.DataPlane), "--image", s.Image())...)
		})
		if err != nil {
			return err
		}
		return r.step(c.name+": cluster DNS answers for clusterset.local", func() error { return c.awaitClusterset(ctx) })
	})
}
