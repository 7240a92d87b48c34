package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// certificateLife is longer than a process lives.
const certificateLife = 10 * 365 * 24 * time.Hour

// selfSigned returns the settings of a TLS server with a new certificate that it signed itself. It
// keeps tokens from those who only listen; clients do not verify the node. The metrics server would
// create one with RSA keys, which takes a second of CPU time.
func selfSigned() (func(*tls.Config), error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "seamark-proxy"}, DNSNames: []string{"seamark-proxy"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create a certificate: %w", err)
	}
	certificate := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
		c.NextProtos = []string{"http/1.1"}
	}, nil
}
