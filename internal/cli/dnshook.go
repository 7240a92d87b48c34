package cli

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/install/chart"
)

// dnsHook is what join or leave changed in the cluster's DNS.
type dnsHook struct {
	// ConfigMap configures it.
	ConfigMap string `json:"configMap"`
	// Action is added, removed or unchanged, or left if the configuration cannot be changed.
	Action string `json:"action"`
	// Why is the reason why it was left.
	Why string `json:"why,omitempty"`
	// Advice is what the user has to do.
	Advice string `json:"advice,omitempty"`
}

func (h *dnsHook) summary() string {
	switch h.Action {
	case "added":
		return fmt.Sprintf("forwards the clusterset's names (ConfigMap %s)", h.ConfigMap)
	case "removed":
		return fmt.Sprintf("no longer forwards the clusterset's names (ConfigMap %s)", h.ConfigMap)
	case "left":
		return "NOT changed: " + h.Why
	}
	return fmt.Sprintf("unchanged (ConfigMap %s)", h.ConfigMap)
}

// hookDNS makes the cluster's DNS forward the zone, and the reverse names that belong to the
// clusterset, to seamark-dns. A configuration that it cannot change is left as it is; the advice
// then says what to add to it.
func hookDNS(ctx context.Context, c client.Client, zone string) (*dnsHook, error) {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: chart.Namespace, Name: survey.DNSServer}
	if err := c.Get(ctx, key, service); err != nil {
		return nil, fmt.Errorf("read the address of Service %s: %w", key, err)
	}
	ranges, err := brokeradmin.ForwardedRanges(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("read whose reverse names to forward: %w", err)
	}
	forward := corefile.Forward{Zone: zone, Reverse: corefile.ReverseZones(ranges), Servers: service.Spec.ClusterIPs}
	block, err := corefile.Block(forward)
	if err != nil {
		return nil, fmt.Errorf("forward %s to Service %s: %w", zone, key, err)
	}
	hook, err := editCorefile(ctx, c, "added", func(config *corev1.ConfigMap) (string, string) { return corefile.AddTo(config, forward) })
	if err != nil {
		return nil, err
	}
	if hook.Action == "left" {
		hook.Advice = fmt.Sprintf("Make the cluster's DNS forward %s to %s. For CoreDNS that is this server block:\n\n%s\n",
			zone, strings.Join(forward.Servers, " or "), block)
	}
	return hook, nil
}

// unhookDNS removes what hookDNS added; it returns nil if there is nothing to remove.
func unhookDNS(ctx context.Context, c client.Client) (*dnsHook, error) {
	hook, err := editCorefile(ctx, c, "removed", corefile.RemoveFrom)
	if err != nil {
		return nil, err
	}
	if hook.Action == "unchanged" || (hook.Action == "left" && hook.Why == corefile.NoCorefile) {
		return nil, nil
	}
	return hook, nil
}

func editCorefile(
	ctx context.Context, c client.Client, action string, edit func(*corev1.ConfigMap) (text, left string),
) (*dnsHook, error) {
	hook := &dnsHook{ConfigMap: corefile.ConfigMap.String()}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		hook.Action, hook.Why, hook.Advice = action, "", ""
		config := &corev1.ConfigMap{}
		err := c.Get(ctx, corefile.ConfigMap, config)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		text, left := edit(config)
		old := config.Data[corefile.Key]
		switch {
		case left != "":
			hook.Action, hook.Why = "left", left
			return nil
		case text == old:
			hook.Action = "unchanged"
			return nil
		}
		if !strings.Contains(old, "reload") {
			hook.Advice = "This CoreDNS does not reload its configuration by itself: kubectl -n kube-system rollout restart deployment coredns\n"
		}
		config.Data[corefile.Key] = text
		return c.Update(ctx, config)
	})
	if err != nil {
		return nil, fmt.Errorf("change the cluster's DNS in ConfigMap %s: %w", hook.ConfigMap, err)
	}
	return hook, nil
}
