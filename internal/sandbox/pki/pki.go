// Package pki creates the certificates of short-lived clusters on one machine: authorities,
// certificates that they sign, and keys, as PEM files that only their owner can read. The sandbox
// and the control planes of tests use it.
package pki

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
	"os"
	"path/filepath"
	"time"
)

// Authority is a certificate with the key that signs for it.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf describes a certificate of a server, a client or both.
type Leaf struct {
	// Name is its common name: the user, as Kubernetes sees it.
	Name string
	// Group is its organization, if any: the group, as Kubernetes sees it.
	Group string
	// Hosts and IPs are the names and addresses of a server.
	Hosts []string
	IPs   []net.IP
}

// Writer creates certificates and writes them to files. After the first error it does nothing, so a
// whole set can be written without a check after each line; CreateOnce returns that error. Its
// methods take the final paths of the files and write to a temporary folder.
type Writer struct {
	dir string
	err error
}

// CreateOnce creates the folder dir and has write fill it with certificates. A folder that exists
// is left as it is. The certificates are written to a folder of another name that is renamed when
// it is complete, so a process that is killed never leaves half a set behind.
func CreateOnce(dir string, write func(*Writer)) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.Mkdir(partial, 0o700); err != nil {
		return err
	}
	w := &Writer{dir: partial}
	write(w)
	if w.err != nil {
		return w.err
	}
	return os.Rename(partial, dir)
}

// APIServerHosts are the names by which clients reach the API server of a cluster.
var APIServerHosts = []string{
	"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// Authority creates a self-signed authority and writes its certificate and key.
func (w *Writer) Authority(name, cert, key string) Authority {
	template := Leaf{Name: name}.template()
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	return w.sign(Authority{cert: template}, template, cert, key)
}

// Issue creates a key and a certificate for it and writes both.
func (w *Writer) Issue(issuer Authority, leaf Leaf, cert, key string) {
	w.sign(issuer, leaf.template(), cert, key)
}

// sign creates a certificate for a new key. Without a key of the issuer it is self-signed.
func (w *Writer) sign(issuer Authority, template *x509.Certificate, certPath, keyPath string) Authority {
	key := w.Key(keyPath)
	if w.err != nil {
		return Authority{}
	}
	if issuer.key == nil {
		issuer.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		w.err = fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
		return Authority{}
	}
	w.write(certPath, "CERTIFICATE", der)
	cert, err := x509.ParseCertificate(der)
	w.err = errors.Join(w.err, err)
	return Authority{cert, key}
}

// Key creates a key and writes it.
func (w *Writer) Key(path string) *ecdsa.PrivateKey {
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

// write writes a PEM file to the writer's folder, under the last element of its final path.
func (w *Writer) write(path, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	w.err = errors.Join(w.err, os.WriteFile(filepath.Join(w.dir, filepath.Base(path)), text, 0o600))
}

// template returns a certificate for servers and clients: etcd uses one certificate as both with
// its peers.
func (l Leaf) template() *x509.Certificate {
	subject := pkix.Name{CommonName: l.Name}
	if l.Group != "" {
		subject.Organization = []string{l.Group}
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail on any system Go supports
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// An hour back, because a clock that is a little behind must not make it invalid.
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    l.Hosts,
		IPAddresses: l.IPs,
	}
}
