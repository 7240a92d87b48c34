package operate_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui"
	"github.com/seamark-dev/seamark/test/fleet"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

// The archive has everything that support needs, and no secret, wherever a user has put one.
func TestGatherHasNoSecrets(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	m, err := objects.MembershipFrom(membership(t, term.east))
	if err != nil {
		t.Fatal(err)
	}
	term.east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	term.east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Annotations = map[string]string{
			"careless": "token: " + m.Token, "pem": string(m.CAData), corev1.LastAppliedConfigAnnotation: `{"password":"hunter22"}`,
		}
	})
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data:       map[string]string{"Corefile": ".:53 {\n}\n# Bearer abcdefgh12345678\n"},
	}
	term.east.Create(t, config)
	t.Cleanup(func() { term.east.Delete(t, config) })
	term.eventually("get imports -n "+ns+" --contexts west", "web", "True")

	path := filepath.Join(t.TempDir(), "g.tar.gz")
	term.expect(0, "gather --contexts east,west --broker-context broker -o "+path, "without secrets", "Look at it before you send it")
	files := unpack(t, path)
	for _, name := range []string{
		"README.txt", "versions.yaml", "doctor.txt", "status.txt",
		"broker/clustersets.yaml", "broker/clusters.yaml", "broker/exportrecords.yaml", "broker/endpointslices.yaml",
		"broker/serviceimports.yaml", "broker/leases.yaml",
		"clusters/east/serviceexports.yaml", "clusters/west/serviceimports.yaml", "clusters/west/endpointslices.yaml",
		"clusters/west/derived/services.yaml", "clusters/east/exported/services.yaml", "clusters/east/exported/endpointslices.yaml",
		"clusters/west/namespaces.yaml", "clusters/east/configmap-kube-system-coredns.yaml",
		"clusters/east/clusterproperties.yaml", "clusters/east/seamark-system/pods.yaml",
	} {
		if files["seamark/"+name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.Contains(files["seamark/clusters/east/serviceexports.yaml"], "name: web") ||
		!strings.Contains(files["seamark/doctor.txt"], "heartbeat") {
		t.Error("exports or the report of doctor are missing")
	}
	for name, text := range files {
		for what, secret := range map[string]string{
			"the token": m.Token, "the token, encoded": base64.StdEncoding.EncodeToString([]byte(m.Token)), "a certificate": "BEGIN CERTIFICATE",
			"an encoded certificate": "LS0tLS1CRUdJTi", "a password": "hunter22", "a bearer token": "abcdefgh12345678",
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %s", name, what)
			}
		}
	}
	opened, err := ui.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if row := opened.History.Now().Row(ns + "/web"); row == nil || !row.Cell(0).Exports || !row.Cell(1).Imports {
		t.Errorf("the page shows the service as %+v", row)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	term.expect(1, "gather -o "+path, "choose another name")
}

// While the broker is unreachable the archive has the rest, and names what is missing.
func TestGatherDuringAnOutage(t *testing.T) {
	term := freshClusterset(t)
	if err := term.fleet.Broker.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "g.tar.gz")
	term.expect(0, "gather -o "+path, "missing: the broker")
	files := unpack(t, path)
	if !strings.Contains(files["seamark/README.txt"], "the broker") || files["seamark/clusters/east/serviceexports.yaml"] == "" {
		t.Errorf("%v", files["seamark/README.txt"])
	}
}
