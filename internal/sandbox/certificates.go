//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark-dev/seamark/internal/sandbox/pki"
)

// identities are the users of a cluster that have a kubeconfig, by the file name of their
// certificate.
var identities = map[string]pki.Leaf{
	"admin":                   {Name: "seamark-sandbox-admin", Group: "system:masters"},
	"kube-controller-manager": {Name: "system:kube-controller-manager"},
	"kube-scheduler":          {Name: "system:kube-scheduler"},
	"kube-proxy":              {Name: "system:kube-proxy"},
	"kubelet":                 {Group: "system:nodes"}, // Name is set from the node
}

func (c cluster) cert(name string) string { return c.path("pki", name+".crt") }
func (c cluster) key(name string) string  { return c.path("pki", name+".key") }

// kubeconfig returns the path of the kubeconfig of an identity.
func (c cluster) kubeconfig(identity string) string { return c.path(identity + ".kubeconfig") }

// ensureCertificates creates the certificates of a cluster once, and writes its kubeconfigs.
func (c cluster) ensureCertificates() error {
	if err := pki.CreateOnce(c.path("pki"), c.writeCertificates); err != nil {
		return err
	}
	for identity := range identities {
		if err := c.writeKubeconfig(identity); err != nil {
			return err
		}
	}
	return nil
}

func (c cluster) writeCertificates(w *pki.Writer) {
	issue := func(by pki.Authority, name string, leaf pki.Leaf) { w.Issue(by, leaf, c.cert(name), c.key(name)) }
	ca := w.Authority("seamark sandbox "+c.name, c.cert("ca"), c.key("ca"))
	issue(ca, "kube-apiserver", pki.Leaf{Name: "kube-apiserver", Hosts: pki.APIServerHosts, IPs: c.apiserverIPs()})
	issue(ca, "kube-apiserver-kubelet-client", pki.Leaf{Name: "kube-apiserver-kubelet-client", Group: "system:masters"})
	issue(ca, "kubelet-server", pki.Leaf{Name: c.node(), Hosts: []string{c.node()}, IPs: netIPs(addrs(c.nodeIPs))})
	for name, leaf := range identities {
		if name == "kubelet" {
			leaf.Name = "system:node:" + c.node()
		}
		issue(ca, name, leaf)
	}
	etcd := w.Authority("seamark sandbox etcd "+c.name, c.cert("etcd-ca"), c.key("etcd-ca"))
	issue(etcd, "etcd", pki.Leaf{Name: "etcd", Hosts: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	issue(etcd, "etcd-client", pki.Leaf{Name: "kube-apiserver"})
	w.Key(c.key("service-account"))
}

// apiserverIPs returns all addresses of the API server: those of the node, loopback, and those of
// the `kubernetes` Service for pods.
func (c cluster) apiserverIPs() []net.IP {
	all := append(addrs(c.nodeIPs), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	for _, services := range c.serviceCIDRs {
		all = append(all, nth(services, 1))
	}
	return netIPs(all)
}

func netIPs(list []netip.Addr) []net.IP {
	ips := make([]net.IP, len(list))
	for i, a := range list {
		ips[i] = a.AsSlice()
	}
	return ips
}

func (c cluster) writeKubeconfig(identity string) error {
	config := clientcmdapi.NewConfig()
	if err := c.addContext(config, identity); err != nil {
		return fmt.Errorf("cluster %s: kubeconfig of %s: %w", c.name, identity, err)
	}
	config.CurrentContext = c.name
	return clientcmd.WriteToFile(*config, c.kubeconfig(identity)) // writes with mode 0600
}

// addContext adds the cluster and one of its users, with embedded certificates, as a context named
// like the cluster.
func (c cluster) addContext(config *clientcmdapi.Config, identity string) error {
	read := func(path string, err *error) []byte {
		text, readErr := os.ReadFile(path)
		*err = errors.Join(*err, readErr)
		return text
	}
	var err error
	user := c.name + "-" + identity
	config.Clusters[c.name] = &clientcmdapi.Cluster{Server: c.server(), CertificateAuthorityData: read(c.cert("ca"), &err)}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: read(c.cert(identity), &err), ClientKeyData: read(c.key(identity), &err),
	}
	config.Contexts[c.name] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: user}
	return err
}

// mergedKubeconfig returns the path of the kubeconfig with an admin's context for every cluster.
func (p plan) mergedKubeconfig() string { return p.dir + "/kubeconfig" }

func (p plan) writeMergedKubeconfig() error {
	config := clientcmdapi.NewConfig()
	for _, c := range p.clusters {
		if err := c.addContext(config, "admin"); err != nil {
			return fmt.Errorf("kubeconfig of cluster %s: %w", c.name, err)
		}
	}
	config.CurrentContext = p.clusters[0].name
	return clientcmd.WriteToFile(*config, p.mergedKubeconfig())
}
