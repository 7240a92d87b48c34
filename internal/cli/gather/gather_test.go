package gather

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Secrets are removed by their form and by the name of their field; everything else stays.
func TestScrub(t *testing.T) {
	g := newWriter(&bytes.Buffer{}, time.Time{})
	g.hide("known-secret-value")
	g.hide("short")
	for text, want := range map[string]string{
		"a known-secret-value b":                              "a (removed) b",
		"a short word stays":                                  "a short word stays",
		"x eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.sig-_x y": "x (removed) y",
		"Authorization: Bearer abcdefgh12345678":              "Authorization: (removed)",
		`"token":"abc","name":"web"`:                          `"token":(removed),"name":"web"`,
		"password: hunter22\nname: web":                       "password: (removed)\nname: web",
		`{\"password\":\"x\"}`:                                `{\"password\":(removed)}`,
		"caBundle: Zm9v\n":                                    "caBundle: (removed)\n",
		"ca: LS0tLS1CRUdJTiBDRVJU\n":                          "ca: (removed)\n",
		"-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nrest": "(removed)\nrest",
		"careless: 'token: hunter22'\nname: web":                                  "careless: 'token: (removed)'\nname: web",
		`"careless": "token: hunter22", "name": "web"`:                            `"careless": "token: (removed)", "name": "web"`,
		"careless: 'token: hunter''22'":                                           "careless: 'token: (removed)'",
		"password: 'hunter 22'":                                                   "password: (removed)",
		"password: 'hunter22\nname: web":                                          "password: (removed)\nname: web",
		`password=\"hunter22 rest`:                                                "password=(removed) rest",
		"automountServiceAccountToken: false":                                     "automountServiceAccountToken: false",
		"name: token-reviewer":                                                    "name: token-reviewer",
	} {
		if got := g.scrub(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// An archive that cannot be completed is removed, and an existing file is not overwritten.
func TestWriteArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.tar.gz")
	result, err := writeArchive(path, time.Now(), func(g *writer) { g.text("a.txt", "hello") })
	if err != nil || result.Files != 2 || result.Bytes == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := writeArchive(path, time.Now(), func(*writer) {}); err == nil || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("%v", err)
	}
	broken := filepath.Join(t.TempDir(), "b.tar.gz")
	_, err = writeArchive(broken, time.Now(), func(g *writer) { g.err = os.ErrClosed })
	if _, statErr := os.Stat(broken); err == nil || !os.IsNotExist(statErr) {
		t.Errorf("%v, %v", err, statErr)
	}
}

// The key of a cluster's beacons is for members of the clusterset only.
func TestKeysOfBeaconsAreRemoved(t *testing.T) {
	cluster := &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Beacons: &v1alpha1.Beacons{
		Port: 9446, Key: []byte("secret"), Addresses: []v1alpha1.BeaconAddress{{IP: "10.1.0.1"}},
	}}}
	if err := stripSecrets(cluster); err != nil {
		t.Fatal(err)
	}
	if b := cluster.Status.Beacons; b.Key != nil || b.Port != 9446 || len(b.Addresses) != 1 {
		t.Errorf("%+v", b)
	}
	if err := stripSecrets(&v1alpha1.Cluster{}); err != nil {
		t.Error(err)
	}
}
