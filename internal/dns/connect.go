package dns

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcsclient "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned/typed/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
	"github.com/seamark-dev/seamark/internal/daemon/version"
)

// clients are the clients of the local API server.
type clients struct {
	kube  kubernetes.Interface
	mcs   mcsclient.MulticlusterV1beta1Interface
	about rest.Interface
}

// connect creates the clients without sending a request. It fails if there is no usable
// configuration.
func connect(kubeconfig, context string) (clients, error) {
	config, err := restConfig(kubeconfig, context)
	if err != nil {
		return clients{}, err
	}
	config.QPS = -1 // a few watches need no limit here; the API server has its own
	config.UserAgent = "seamark-dns/" + version.String()
	config.Wrap(kinds.New(func() {}).Wrap)
	var c clients
	if c.mcs, err = mcsclient.NewForConfig(config); err != nil {
		return c, fmt.Errorf("create the client for ServiceImports: %w", err)
	}
	if c.about, err = aboutClient(rest.CopyConfig(config)); err != nil {
		return c, fmt.Errorf("create the client for ClusterProperties: %w", err)
	}
	binary := rest.CopyConfig(config) // built-in kinds are available as protobuf, which is cheaper to decode
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if c.kube, err = kubernetes.NewForConfig(binary); err != nil {
		return c, fmt.Errorf("create the client for EndpointSlices: %w", err)
	}
	return c, nil
}

func restConfig(kubeconfig, context string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no access to the cluster: %w; outside a pod the option `kubeconfig PATH [CONTEXT]` is needed", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

func aboutClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := aboutv1beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion = &aboutv1beta1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
