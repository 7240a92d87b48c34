package brokeradmin

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// NewScheme returns a scheme with every kind that brokers and members use.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1beta1.Install,
		v1alpha1.AddToScheme, aboutv1beta1.AddToScheme, claimsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two packages registered one kind: a mistake in the code above
		}
	}
	return scheme
}

// NewClient returns a client without a cache and with the kinds of NewScheme. It fails only on an
// unusable configuration. The API server is not contacted before the first request.
func NewClient(config *rest.Config) (client.Client, error) {
	c, err := client.New(config, client.Options{Scheme: NewScheme()})
	if err != nil {
		return nil, err
	}
	discovering, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &discoveryClient{Client: c, discovery: discovering}, nil
}
