// Command manifests prints what `subctl` applies before Submariner's operator runs: the CRDs of its
// resources, and the accounts and roles of the operator and of Lighthouse. With the argument
// "broker" it prints the role that clusters have on the broker. It is for the tests of migrations
// that run Submariner in pods.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	broker "github.com/submariner-io/submariner-operator/config/broker/broker-client"
	agent "github.com/submariner-io/submariner-operator/config/rbac/lighthouse-agent"
	coredns "github.com/submariner-io/submariner-operator/config/rbac/lighthouse-coredns"
	operator "github.com/submariner-io/submariner-operator/config/rbac/submariner-operator"
	"github.com/submariner-io/submariner-operator/deploy/crds"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The namespaces that `subctl` gives.
const (
	operatorNamespace = "submariner-operator"
	brokerNamespace   = "submariner-k8s-broker"
)

func main() {
	namespace, texts := operatorNamespace, [][]byte{
		crds.BrokerCRD, crds.ServiceDiscoveryCRD, crds.SubmarinerCRD,
		operator.ServiceAccount, operator.Role, operator.RoleBinding, operator.ClusterRole, operator.ClusterRoleBinding,
		agent.ServiceAccount, agent.Role, agent.RoleBinding, agent.ClusterRole, agent.ClusterRoleBinding,
		coredns.ServiceAccount, coredns.Role, coredns.RoleBinding, coredns.ClusterRole, coredns.ClusterRoleBinding,
	}
	if slices.Equal(os.Args[1:], []string{"broker"}) {
		namespace, texts = brokerNamespace, [][]byte{broker.Role}
	}
	for _, text := range texts {
		if err := printManifest(text, namespace); err != nil {
			fmt.Fprintln(os.Stderr, "manifests:", err)
			os.Exit(1)
		}
	}
}

// printManifest prints a manifest with the namespaces that `subctl` sets.
func printManifest(text []byte, namespace string) error {
	var obj unstructured.Unstructured
	if err := yaml.Unmarshal(text, &obj.Object); err != nil {
		return err
	}
	kind := obj.GetKind()
	if slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding"}, kind) {
		obj.SetNamespace(namespace)
	}
	if strings.HasSuffix(kind, "Binding") {
		subjects, _, err := unstructured.NestedSlice(obj.Object, "subjects")
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			subject.(map[string]any)["namespace"] = namespace
		}
		if err := unstructured.SetNestedSlice(obj.Object, subjects, "subjects"); err != nil {
			return err
		}
	}
	out, err := yaml.Marshal(obj.Object)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("---\n%s", out)
	return err
}
