package cli

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/install/chart"
)

// clusterDNS is the ConfigMap with the configuration of CoreDNS in clusters that use it, such as
// those of kubeadm, kind and EKS.
var clusterDNS = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}

const (
	corefileKey = "Corefile"
	// labelAddonMode marks objects that an addon manager, such as AKS's, restores after a change.
	labelAddonMode = "addonmanager.kubernetes.io/mode"
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
	hook, err := editCorefile(ctx, c, "added", func(text string) (string, error) { return corefile.Add(text, forward) })
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
	hook, err := editCorefile(ctx, c, "removed", corefile.Remove)
	if err != nil {
		return nil, err
	}
	if hook.Action == "unchanged" || (hook.Action == "left" && hook.Why == noCorefile) {
		return nil, nil
	}
	return hook, nil
}

const noCorefile = "there is no ConfigMap kube-system/coredns with a Corefile"

func editCorefile(ctx context.Context, c client.Client, action string, edit func(string) (string, error)) (*dnsHook, error) {
	hook := &dnsHook{ConfigMap: clusterDNS.String()}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		hook.Action, hook.Why, hook.Advice = action, "", ""
		config := &corev1.ConfigMap{}
		err := c.Get(ctx, clusterDNS, config)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		old, ok := config.Data[corefileKey]
		if !ok {
			hook.Action, hook.Why = "left", noCorefile
			return nil
		}
		if action == "added" && config.Labels[labelAddonMode] == "Reconcile" {
			hook.Action = "left"
			hook.Why = fmt.Sprintf("ConfigMap %s is managed by the cluster's provider, which would undo the change (label %s)",
				hook.ConfigMap, labelAddonMode)
			return nil
		}
		text, err := edit(old)
		if err != nil { // text of another author is in the way, which only the user may change
			hook.Action, hook.Why = "left", fmt.Sprintf("ConfigMap %s: %v", hook.ConfigMap, err)
			return nil
		}
		if text == old {
			hook.Action = "unchanged"
			return nil
		}
		if !strings.Contains(old, "reload") {
			hook.Advice = "This CoreDNS does not reload its configuration by itself: kubectl -n kube-system rollout restart deployment coredns\n"
		}
		config.Data[corefileKey] = text
		return c.Update(ctx, config)
	})
	if err != nil {
		return nil, fmt.Errorf("change the cluster's DNS in ConfigMap %s: %w", hook.ConfigMap, err)
	}
	return hook, nil
}
