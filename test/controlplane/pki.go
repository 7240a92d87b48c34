package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/seamark-dev/seamark/internal/sandbox/pki"
)

// certFiles are a certificate and its key on disk.
type certFiles struct{ cert, key string }

// files are the paths in a control plane's folder.
type files struct {
	pkiDir                                                        string
	ca, apiserver, admin, manager, etcdCA, etcdServer, etcdClient certFiles
	serviceAccount                                                string // key that signs tokens
	etcdData                                                      string
	kubeconfig, directKubeconfig, managerKubeconfig               string
}

func filesIn(dir string) files {
	pkiDir := filepath.Join(dir, "pki")
	pair := func(name string) certFiles {
		return certFiles{filepath.Join(pkiDir, name+".crt"), filepath.Join(pkiDir, name+".key")}
	}
	return files{
		pkiDir: pkiDir,
		ca:     pair("ca"), apiserver: pair("apiserver"), admin: pair("admin"), manager: pair("controller-manager"),
		etcdCA: pair("etcd-ca"), etcdServer: pair("etcd-server"), etcdClient: pair("etcd-client"),
		serviceAccount:    filepath.Join(pkiDir, "service-account.key"),
		etcdData:          filepath.Join(dir, "etcd"),
		kubeconfig:        filepath.Join(dir, "kubeconfig"),
		directKubeconfig:  filepath.Join(dir, "direct.kubeconfig"),
		managerKubeconfig: filepath.Join(dir, "controller-manager.kubeconfig"),
	}
}

// credentials are the certificates that this process uses; the components read theirs from files.
type credentials struct {
	ca, etcdCA                 []byte // PEM
	admin, manager, etcdClient keyPair
}

type keyPair struct{ cert, key []byte } // PEM

// loadOrCreatePKI reads the certificates of an earlier run, or creates new ones.
func loadOrCreatePKI(f files, serviceIPs []netip.Addr) (*credentials, error) {
	err := pki.CreateOnce(f.pkiDir, func(w *pki.Writer) { writePKI(w, f, serviceIPs) })
	if err != nil {
		return nil, err
	}
	return loadPKI(f)
}

func writePKI(w *pki.Writer, f files, serviceIPs []netip.Addr) {
	loopbacks := []net.IP{net.IPv4(127, 0, 0, 1)}
	addresses := loopbacks
	for _, ip := range serviceIPs {
		addresses = append(addresses, ip.AsSlice())
	}
	authority := func(name string, to certFiles) pki.Authority { return w.Authority(name, to.cert, to.key) }
	issue := func(by pki.Authority, leaf pki.Leaf, to certFiles) { w.Issue(by, leaf, to.cert, to.key) }
	cluster := authority("seamark cluster CA", f.ca)
	issue(cluster, pki.Leaf{Name: "kube-apiserver", Hosts: pki.APIServerHosts, IPs: addresses}, f.apiserver)
	issue(cluster, pki.Leaf{Name: "seamark-admin", Group: "system:masters"}, f.admin)
	issue(cluster, pki.Leaf{Name: "system:kube-controller-manager"}, f.manager)
	etcd := authority("seamark etcd CA", f.etcdCA)
	issue(etcd, pki.Leaf{Name: "etcd", Hosts: []string{"localhost"}, IPs: loopbacks}, f.etcdServer)
	issue(etcd, pki.Leaf{Name: "kube-apiserver"}, f.etcdClient)
	w.Key(f.serviceAccount)
}

func loadPKI(f files) (*credentials, error) {
	var err error
	read := func(path string) []byte {
		text, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr)
		return text
	}
	pair := func(c certFiles) keyPair { return keyPair{read(c.cert), read(c.key)} }
	p := &credentials{
		ca: read(f.ca.cert), etcdCA: read(f.etcdCA.cert),
		admin: pair(f.admin), manager: pair(f.manager), etcdClient: pair(f.etcdClient),
	}
	if err != nil {
		return nil, fmt.Errorf("%s is incomplete; remove it to create new certificates: %w", f.pkiDir, err)
	}
	return p, nil
}
