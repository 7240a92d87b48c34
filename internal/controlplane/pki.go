package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// certFiles are a certificate and its key on disk.
type certFiles struct{ cert, key string }

// files are the paths of everything in a control plane's folder.
type files struct {
	pkiDir                                                        string
	ca, apiserver, admin, manager, etcdCA, etcdServer, etcdClient certFiles
	serviceAccount                                                string // key that signs tokens
	etcdData                                                      string
	kubeconfig, managerKubeconfig                                 string
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
		managerKubeconfig: filepath.Join(dir, "controller-manager.kubeconfig"),
	}
}

// pki is what this process itself presents or trusts; the children read theirs from the files.
type pki struct {
	ca, etcdCA                 []byte // PEM
	admin, manager, etcdClient keyPair
}

type keyPair struct{ cert, key []byte } // PEM

// loadOrCreatePKI reads the certificates of an earlier run, or makes new ones. They are written to a folder of another
// name that is renamed when complete, so a start that is killed never leaves half a set behind.
func loadOrCreatePKI(f files, serviceIPs []netip.Addr) (*pki, error) {
	if _, err := os.Stat(f.pkiDir); errors.Is(err, os.ErrNotExist) {
		partial := f.pkiDir + ".partial"
		if err := os.RemoveAll(partial); err != nil {
			return nil, err
		}
		if err := createPKI(partial, f, serviceIPs); err != nil {
			return nil, err
		}
		if err := os.Rename(partial, f.pkiDir); err != nil {
			return nil, err
		}
	}
	return loadPKI(f)
}

func createPKI(dir string, f files, serviceIPs []netip.Addr) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	hosts := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	loopbacks := []net.IP{net.IPv4(127, 0, 0, 1)}
	addresses := loopbacks
	for _, ip := range serviceIPs {
		addresses = append(addresses, ip.AsSlice())
	}
	w := &certWriter{dir: dir}
	cluster := w.authority("seamark cluster CA", f.ca)
	w.issue(cluster, leaf("kube-apiserver", "", hosts, addresses), f.apiserver)
	w.issue(cluster, leaf("seamark-admin", "system:masters", nil, nil), f.admin)
	w.issue(cluster, leaf("system:kube-controller-manager", "", nil, nil), f.manager)
	etcd := w.authority("seamark etcd CA", f.etcdCA)
	w.issue(etcd, leaf("etcd", "", []string{"localhost"}, loopbacks), f.etcdServer)
	w.issue(etcd, leaf("kube-apiserver", "", nil, nil), f.etcdClient)
	w.key(f.serviceAccount)
	return w.err
}

func loadPKI(f files) (*pki, error) {
	var err error
	read := func(path string) []byte {
		text, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr)
		return text
	}
	pair := func(c certFiles) keyPair { return keyPair{read(c.cert), read(c.key)} }
	p := &pki{ca: read(f.ca.cert), etcdCA: read(f.etcdCA.cert), admin: pair(f.admin), manager: pair(f.manager), etcdClient: pair(f.etcdClient)}
	if err != nil {
		return nil, fmt.Errorf("%s is incomplete; remove it to have new ones made: %w", f.pkiDir, err)
	}
	return p, nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certWriter makes and writes certificates until the first error, which it keeps.
type certWriter struct {
	dir string
	err error
}

func (w *certWriter) authority(name string, to certFiles) authority {
	template := leaf(name, "", nil, nil)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	return w.issue(authority{cert: template}, template, to)
}

// issue signs a certificate for a new key; an issuer without a key means self-signed.
func (w *certWriter) issue(issuer authority, template *x509.Certificate, to certFiles) authority {
	key := w.key(to.key)
	if w.err != nil {
		return authority{}
	}
	if issuer.key == nil {
		issuer.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		w.err = fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
		return authority{}
	}
	w.write(to.cert, "CERTIFICATE", der)
	cert, err := x509.ParseCertificate(der)
	w.err = errors.Join(w.err, err)
	return authority{cert, key}
}

func (w *certWriter) key(path string) *ecdsa.PrivateKey {
	if w.err != nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.err = err
		return nil
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		w.err = err
		return nil
	}
	w.write(path, "EC PRIVATE KEY", der)
	return key
}

// write puts a PEM file into the writer's folder, under the last element of its final path.
func (w *certWriter) write(path, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	w.err = errors.Join(w.err, os.WriteFile(filepath.Join(w.dir, filepath.Base(path)), text, 0o600))
}

// leaf describes a certificate that may both serve and identify a client: etcd presents its own to itself as a peer.
func leaf(name, group string, hosts []string, ips []net.IP) *x509.Certificate {
	subject := pkix.Name{CommonName: name}
	if group != "" {
		subject.Organization = []string{group}
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail on any system Go supports
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// An hour back: a pod or machine whose clock is a little behind must not refuse it.
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    hosts,
		IPAddresses: ips,
	}
}
