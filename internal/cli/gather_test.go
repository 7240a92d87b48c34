package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// What is secret by form or by name is blacked out; what helps stays.
func TestScrub(t *testing.T) {
	g := newGatherer(&bytes.Buffer{}, time.Time{})
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
		"automountServiceAccountToken: false":                                     "automountServiceAccountToken: false",
		"name: token-reviewer":                                                    "name: token-reviewer",
	} {
		if got := g.scrub(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// An archive that cannot be written leaves nothing behind, and one that exists is not touched.
func TestGatherTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.tar.gz")
	result, err := gatherTo(path, time.Now(), func(g *gatherer) { g.text("a.txt", "hello") })
	if err != nil || result.Files != 2 || result.Bytes == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := gatherTo(path, time.Now(), func(*gatherer) {}); err == nil || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("%v", err)
	}
	broken := filepath.Join(t.TempDir(), "b.tar.gz")
	_, err = gatherTo(broken, time.Now(), func(g *gatherer) { g.err = os.ErrClosed })
	if _, statErr := os.Stat(broken); err == nil || !os.IsNotExist(statErr) {
		t.Errorf("%v, %v", err, statErr)
	}
}

func TestParseMetrics(t *testing.T) {
	values := parseMetrics("# HELP x y\n# TYPE x gauge\nx{set=\"services\"} 12\nlast 1.7e+09\nbroken\n")
	if len(values) != 2 || values[`x{set="services"}`] != 12 || values["last"] != 1.7e9 {
		t.Errorf("%v", values)
	}
}

func TestParseServers(t *testing.T) {
	servers, err := parseServers([]string{"10.0.0.1", "west=10.0.0.2:53"})
	if err != nil || servers[""] != "10.0.0.1" || servers["west"] != "10.0.0.2:53" {
		t.Errorf("%v, %v", servers, err)
	}
	if _, err := parseServers([]string{"west="}); err == nil {
		t.Error("an address is missing")
	}
}

func TestPlanOne(t *testing.T) {
	exported := map[string]bool{"had": true}
	for name, test := range map[string]struct {
		svc          corev1.Service
		action, kind string
	}{
		"plain":    {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}, bulkWould, "ClusterIP"},
		"headless": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone}}, bulkWould, "Headless"},
		"external": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}, bulkSkipped, "ExternalName"},
		"had":      {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}, bulkHad, "ClusterIP"},
	} {
		test.svc.Name, test.svc.Namespace = name, "shop"
		item := planOne(&test.svc, exported)
		if item.Action != test.action || item.Type != test.kind || (item.Action == bulkSkipped) != (item.Why != "") {
			t.Errorf("%s: %+v", name, item)
		}
	}
}

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "y": true} {
		if got := confirmed(strings.NewReader(answer), &bytes.Buffer{}); got != want {
			t.Errorf("%q: %t", answer, got)
		}
	}
}

// One ready TCP endpoint of each other cluster is tried.
func TestProbeTargets(t *testing.T) {
	slice := func(cluster string, protocol corev1.Protocol, ready bool, address string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}},
			Ports:      []discoveryv1.EndpointPort{{Protocol: &protocol, Port: ptr.To[int32](80)}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	got := probeTargets([]discoveryv1.EndpointSlice{
		slice("west", corev1.ProtocolUDP, true, "10.2.0.1"), slice("west", corev1.ProtocolTCP, false, "10.2.0.2"), slice("west", corev1.ProtocolTCP, true, "10.2.0.3"),
		slice("west", corev1.ProtocolTCP, true, "10.2.0.4"), slice("east", corev1.ProtocolTCP, true, "10.1.0.1"), slice("north", corev1.ProtocolTCP, true, "10.3.0.1"),
	}, "east")
	if len(got) != 2 || got[0] != (target{"north", "10.3.0.1", 80}) || got[1] != (target{"west", "10.2.0.3", 80}) {
		t.Errorf("%+v", got)
	}
}
