package harness

import (
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig with a context for each of the clusters, called as in the map.
// The contexts have this default namespace. No context is the current one.
func Kubeconfig(clusters map[string]*rest.Config, namespace string) *clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	for name, cfg := range clusters {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
		out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	}
	return out
}
