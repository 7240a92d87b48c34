package chart

import (
	"fmt"
	"log/slog"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func init() {
	// Server-side apply remembers who wrote a field. Were it the name of this program, every later helm upgrade would conflict.
	kube.ManagedFieldsManager = "helm"
}

// access gives Helm one cluster and our namespace, whatever the user's kubeconfig says.
type access struct {
	config    *rest.Config
	discovery discovery.CachedDiscoveryInterface
}

func newAccess(config *rest.Config) (*access, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("no access to the cluster at %s: %w", config.Host, err)
	}
	return &access{config: config, discovery: memory.NewMemCacheClient(d)}, nil
}

// ToRESTConfig implements genericclioptions.RESTClientGetter, as the three below.
func (a *access) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(a.config), nil }

// ToDiscoveryClient keeps what it learnt.
func (a *access) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return a.discovery, nil
}

// ToRESTMapper looks again when a kind is new.
func (a *access) ToRESTMapper() (meta.RESTMapper, error) {
	return restmapper.NewDeferredDiscoveryRESTMapper(a.discovery), nil
}

// ToRawKubeConfigLoader is asked for the namespace of objects that name none.
func (a *access) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: Namespace}})
}

// quietConfiguration is for what needs no cluster. What goes wrong is returned; nothing is logged.
func quietConfiguration() *action.Configuration {
	return action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
}

func newConfiguration(config *rest.Config) (*action.Configuration, error) {
	getter, err := newAccess(config)
	if err != nil {
		return nil, err
	}
	c := quietConfiguration()
	if err := c.Init(getter, Namespace, "secret"); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return c, nil
}
