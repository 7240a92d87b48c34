package brokeradmin

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// NewBrokerObjects returns what Deploy creates on an API server without a broker, in order, but not
// the CRDs: package internal/install/crds has them. It fails if an option is invalid, as Deploy
// does.
func NewBrokerObjects(o DeployOptions) ([]client.Object, error) {
	o.Namespace = cmp.Or(o.Namespace, objects.DefaultNamespace)
	if err := o.check(); err != nil {
		return nil, err
	}
	set, err := desiredClusterSet(nil, o)
	if err != nil {
		return nil, err
	}
	created := []client.Object{brokerNamespace(o.Namespace)}
	rules, err := policies.Load(policies.Broker)
	if err != nil {
		return nil, err
	}
	grants, err := policies.Grants(o.Namespace)
	if err != nil {
		return nil, err
	}
	created = append(append(append(created, rules...), grants...), sharedRole(o.Namespace))
	for _, f := range fairnessOf(o.Namespace) {
		created = append(created, f.level, f.schema)
	}
	return append(created, set), nil
}

func brokerNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: managedLabels("")}}
}
