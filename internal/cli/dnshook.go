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

	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/install/chart"
)

// Where clusters keep the configuration of CoreDNS, if that is their DNS, as kubeadm, kind, EKS and others do.
var clusterDNS = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}

const (
	corefileKey = "Corefile"
	// labelAddonMode tells what an addon manager, such as AKS's, puts back when somebody changes it.
	labelAddonMode = "addonmanager.kubernetes.io/mode"
)

// dnsHook is what became of the cluster's DNS.
type dnsHook struct {
	// ConfigMap that configures it.
	ConfigMap string `json:"configMap"`
	// Action is added, removed or unchanged, or left where the configuration is not one that can be changed.
	Action string `json:"action"`
	// Why it was left.
	Why string `json:"why,omitempty"`
	// Advice is what to do by hand.
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

// hookDNS makes the cluster's DNS forward the zone to seamark-dns. A DNS that it does not know is left alone, and people are told what to
// add.
func hookDNS(ctx context.Context, c client.Client, zone string) (*dnsHook, error) {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: chart.Namespace, Name: "seamark-dns"}
	if err := c.Get(ctx, key, service); err != nil {
		return nil, fmt.Errorf("find the address of Service %s: %w", key, err)
	}
	forward := corefile.Forward{Zones: []string{zone}, Servers: service.Spec.ClusterIPs}
	block, err := corefile.Block(forward)
	if err != nil {
		return nil, fmt.Errorf("forward %s to Service %s: %w", zone, key, err)
	}
	hook, err := editCorefile(ctx, c, "added", func(text string) (string, error) { return corefile.Add(text, forward) })
	if err != nil {
		return nil, err
	}
	if hook.Action == "left" {
		hook.Advice = fmt.Sprintf("Make the cluster's DNS send the names of %s to %s. For CoreDNS that is this server block:\n\n%s\n",
			zone, strings.Join(forward.Servers, " or "), block)
	}
	return hook, nil
}

// unhookDNS takes that back; nil where there is nothing of ours.
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
			hook.Action, hook.Why = "left", fmt.Sprintf("ConfigMap %s is kept by the cluster's provider, who would undo it (label %s)", hook.ConfigMap, labelAddonMode)
			return nil
		}
		text, err := edit(old)
		if err != nil { // somebody else's words are in the way: theirs to change
			hook.Action, hook.Why = "left", fmt.Sprintf("ConfigMap %s: %v", hook.ConfigMap, err)
			return nil
		}
		if text == old {
			hook.Action = "unchanged"
			return nil
		}
		if !strings.Contains(old, "reload") {
			hook.Advice = "This CoreDNS does not read its configuration again by itself: kubectl -n kube-system rollout restart deployment coredns\n"
		}
		config.Data[corefileKey] = text
		return c.Update(ctx, config)
	})
	if err != nil {
		return nil, fmt.Errorf("change the cluster's DNS in ConfigMap %s: %w", hook.ConfigMap, err)
	}
	return hook, nil
}
