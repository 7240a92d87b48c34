package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// customDNSKey is the key of the forward block in a ConfigMap that the Submariner resource names.
	customDNSKey = "lighthouse.server"
	// lighthouseDNS is the Deployment of Lighthouse's DNS server, and its Service.
	lighthouseDNS = "submariner-lighthouse-coredns"
)

// loadsDNS is how long CoreDNS may take to load a changed Corefile: kubelet updates the pods'
// volume within a minute and a half, and the plugin reload looks at it every 30 to 45 seconds.
const loadsDNS = 150 * time.Second

// hasLoaded reports whether the cluster's DNS server has loaded the configuration that was changed
// at this time. The clock here may differ from the API server's, so a command that has waited for
// long enough itself goes on, too.
func hasLoaded(changed, started, now time.Time) bool {
	return now.Sub(changed) >= loadsDNS || now.Sub(started) >= loadsDNS
}

// lastChange returns when an object was last written.
func lastChange(o client.Object) (last time.Time) {
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

func readDNS(ctx context.Context, c client.Client, f *Facts) error {
	custom := f.PreviousDNS
	if s := f.Submariner; s != nil && s.CustomDNS.Name != "" && s.CustomDNS != unusedDNS(*f) {
		custom = s.CustomDNS
	}
	if custom.Name != "" {
		f.DNS.Unsupported = fmt.Sprintf("Submariner writes the forward block to ConfigMap %s/%s, key %s", custom.Namespace, custom.Name, customDNSKey)
		return nil
	}
	config := &corev1.ConfigMap{}
	err := c.Get(ctx, corefile.ConfigMap, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ConfigMap %s: %w", corefile.ConfigMap, err)
	}
	if f.DNS.Unsupported = corefile.Fixed(config); f.DNS.Unsupported != "" {
		return nil
	}
	f.DNS.Changed = lastChange(config)
	text := config.Data[corefile.Key]
	var lighthouseErr, seamarkErr error
	f.DNS.Lighthouse, lighthouseErr = corefile.HasLighthouse(text)
	f.DNS.Seamark, seamarkErr = corefile.Has(text)
	if err := errors.Join(lighthouseErr, seamarkErr); err != nil {
		f.DNS.Unsupported = fmt.Sprintf("ConfigMap %s: %v", corefile.ConfigMap, err)
	}
	return nil
}

// replaceDNS moves the zone from Lighthouse's server to seamark-dns in one write.
func replaceDNS(ctx context.Context, c client.Client) error {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.DNSService}
	if err := c.Get(ctx, key, service); err != nil {
		return fmt.Errorf("read the address of Service %s: %w", key, err)
	}
	ranges, err := brokeradmin.ForwardedRanges(ctx, c)
	if err != nil {
		return fmt.Errorf("read whose reverse names to forward: %w", err)
	}
	forward := corefile.Forward{Reverse: corefile.ReverseZones(ranges), Servers: service.Spec.ClusterIPs}
	return editCorefile(ctx, c, func(text string) (string, error) { return corefile.ReplaceLighthouse(text, forward) })
}

// restoreDNS moves it back.
func restoreDNS(ctx context.Context, c client.Client, f Facts) error {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: f.Submariner.Namespace, Name: lighthouseDNS}
	if err := c.Get(ctx, key, service); err != nil {
		return fmt.Errorf("read the address of Service %s: %w", key, err)
	}
	return editCorefile(ctx, c, func(text string) (string, error) { return corefile.RestoreLighthouse(text, service.Spec.ClusterIP) })
}

func editCorefile(ctx context.Context, c client.Client, edit func(string) (string, error)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		config := &corev1.ConfigMap{}
		if err := c.Get(ctx, corefile.ConfigMap, config); err != nil {
			return err
		}
		text, err := edit(config.Data[corefile.Key])
		if err != nil || text == config.Data[corefile.Key] {
			return err
		}
		config.Data[corefile.Key] = text
		return c.Update(ctx, config)
	})
	if err != nil {
		return fmt.Errorf("change the cluster's DNS in ConfigMap %s: %w", corefile.ConfigMap, err)
	}
	return nil
}
