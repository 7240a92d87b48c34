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
	// The field manager of server-side apply. With the name of this program, every later helm upgrade
	// would conflict.
	kube.ManagedFieldsManager = "helm"
}

// access is Helm's access to one cluster, with Seamark's namespace as default namespace. It does
// not read the user's kubeconfig.
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

// ToRESTConfig implements genericclioptions.RESTClientGetter, like the three methods below.
func (a *access) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(a.config), nil }

// ToDiscoveryClient returns a client that caches the results of discovery.
func (a *access) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return a.discovery, nil
}

// ToRESTMapper returns a mapper that repeats discovery for an unknown kind.
func (a *access) ToRESTMapper() (meta.RESTMapper, error) {
	return restmapper.NewDeferredDiscoveryRESTMapper(a.discovery), nil
}

// ToRawKubeConfigLoader returns a configuration whose namespace applies to objects without one.
func (a *access) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: Namespace}}
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), overrides)
}

// quietConfiguration returns a Helm configuration that logs nothing; all errors are returned. It
// has no access to a cluster.
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
