package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config returns a new client configuration for a cluster admin, with a client certificate and
// without a client-side rate limit. It goes through the relay, so CutOff, Stop and Pause take
// effect on it. It stays valid over restarts.
func (c *ControlPlane) Config() *rest.Config { return c.restConfig(c.ports.relay) }

// DirectConfig is Config without the relay. CutOff has no effect on it. It is for benchmarks, and
// for tests that read from a cluster while other clients are cut off from it.
func (c *ControlPlane) DirectConfig() *rest.Config { return c.restConfig(c.ports.apiserver) }

func (c *ControlPlane) restConfig(port int) *rest.Config {
	return &rest.Config{
		Host: loopbackURL(port),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.pki.ca, CertData: c.pki.admin.cert, KeyData: c.pki.admin.key,
		},
		QPS: -1, // no client-side rate limit: the server decides what is too much
	}
}

// Kubeconfig returns the path of a kubeconfig file for a cluster admin, readable by the user alone,
// with one context named like the control plane. It goes through the relay and stays valid over
// restarts while this process lives.
func (c *ControlPlane) Kubeconfig() string { return c.files.kubeconfig }

// DirectKubeconfig returns the path of a kubeconfig file like that of Kubeconfig, without the
// relay.
func (c *ControlPlane) DirectKubeconfig() string { return c.files.directKubeconfig }

func (c *ControlPlane) writeKubeconfigs() error {
	if err := writeKubeconfig(c.files.kubeconfig, c.options.Name, "admin", c.Config(), c.pki.admin); err != nil {
		return err
	}
	if err := writeKubeconfig(c.files.directKubeconfig, c.options.Name, "admin", c.DirectConfig(), c.pki.admin); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	// The controller-manager is part of the control plane, so CutOff must not affect it.
	return writeKubeconfig(c.files.managerKubeconfig, c.options.Name, "controller-manager", c.DirectConfig(), c.pki.manager)
}

func writeKubeconfig(path, name, user string, server *rest.Config, identity keyPair) error {
	config := clientcmdapi.NewConfig()
	user = name + "-" + user
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: identity.cert, ClientKeyData: identity.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil { // writes with mode 0600
		return fmt.Errorf("write the kubeconfig of control plane %q: %w", name, err)
	}
	return nil
}
