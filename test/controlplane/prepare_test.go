package controlplane

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrepareNeedsAFolderAndARange(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"no folder":      {Options{}, "Options.Dir is empty"},
		"no CIDR":        {Options{Dir: t.TempDir(), ServiceCIDR: "10.0.0.1"}, `service range "10.0.0.1" is not a CIDR`},
		"bad second one": {Options{Dir: t.TempDir(), ServiceCIDR: "10.0.0.0/16,fd00::"}, `service range "fd00::" is not a CIDR`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := prepare("kube", tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	c, err := prepare("kube", Options{Dir: t.TempDir(), ServiceCIDR: "10.96.0.0/16,fd00:96::/112"})
	if err != nil {
		t.Fatal(err)
	}
	cluster, etcd := pool(t, c.files.ca.cert), pool(t, c.files.etcdCA.cert)
	for _, name := range []string{"127.0.0.1", "localhost", "10.96.0.1", "fd00:96::1", "kubernetes.default.svc"} {
		verify(t, c.files.apiserver, x509.VerifyOptions{Roots: cluster, DNSName: name})
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	admin := verify(t, c.files.admin, x509.VerifyOptions{Roots: cluster, KeyUsages: client})
	if got := admin.Subject.Organization; len(got) != 1 || got[0] != "system:masters" {
		t.Errorf("admin is in the groups %v, want system:masters", got)
	}
	verify(t, c.files.manager, x509.VerifyOptions{Roots: cluster, KeyUsages: client})
	verify(t, c.files.etcdServer, x509.VerifyOptions{Roots: etcd, DNSName: "127.0.0.1"})
	verify(t, c.files.etcdClient, x509.VerifyOptions{Roots: etcd, KeyUsages: client})
	if _, err := read(t, c.files.admin.cert).Verify(x509.VerifyOptions{Roots: etcd, KeyUsages: client}); err == nil {
		t.Error("etcd would accept the certificate of a client of the API server")
	}
}

func TestKeysAreReadableByTheUserAlone(t *testing.T) {
	c, err := prepare("kube", Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(c.files.pkiDir, "*.key"))
	if err != nil || len(keys) != 8 {
		t.Fatalf("got keys %v, %v", keys, err)
	}
	for _, key := range keys {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, info.Mode(), err)
		}
	}
}

func TestSecondStartKeepsCertificates(t *testing.T) {
	dir := t.TempDir()
	first, err := prepare("kube", Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	second, err := prepare("kube", Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.pki.ca, second.pki.ca) || !bytes.Equal(first.pki.admin.cert, second.pki.admin.cert) {
		t.Error("the second start has other certificates, so clients of the first would be refused")
	}
	if err := os.Remove(second.files.admin.key); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare("kube", Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "is incomplete; remove it") {
		t.Errorf("an incomplete set of certificates: got %v", err)
	}
}

func TestFreePortsAreDistinctAndInRange(t *testing.T) {
	p, err := freePorts()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range []int{p.etcd, p.peer, p.apiserver, p.relay} {
		if seen[port] || port < firstPort || port > lastPort {
			t.Errorf("ports %+v: %d is a duplicate or out of range", p, port)
		}
		seen[port] = true
	}
}

func TestCallersFlagsComeLast(t *testing.T) {
	args := apiserverArgs(Options{ServiceCIDR: DefaultServiceCIDR, APIServerArgs: []string{"--profiling=true"}}, files{}, ports{})
	if args[len(args)-1] != "--profiling=true" {
		t.Errorf("got %q", args)
	}
}

func TestLogTailShowsOnlyThisRun(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	old := strings.Repeat("old\n", 5)
	if err := os.WriteFile(log, []byte(old+strings.Repeat("new\n", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := logTail(log, int64(len(old))); got != "new\nnew\nnew" {
		t.Errorf("got %q", got)
	}
}

func pool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	certs := x509.NewCertPool()
	certs.AddCert(read(t, path))
	return certs
}

func read(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func verify(t *testing.T, files certFiles, options x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	cert := read(t, files.cert)
	if _, err := cert.Verify(options); err != nil {
		t.Errorf("%s for %q: %v", filepath.Base(files.cert), options.DNSName, err)
	}
	return cert
}
