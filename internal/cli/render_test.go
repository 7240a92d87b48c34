package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// printed runs a command that needs no cluster.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errOut bytes.Buffer
	if code := Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("%v: exit %d: %s", args, code, errOut.String())
	}
	return out.String()
}

// manifests returns the objects of YAML documents as kind and name, in their order.
func manifests(t *testing.T, text string) (names []string) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(obj.Object, "status"); found || strings.Contains(text, "creationTimestamp: null") {
			t.Errorf("%s %s has fields that only an API server writes", obj.GetKind(), obj.GetName())
		}
		names = append(names, obj.GetKind()+" "+obj.GetName())
	}
}

// Rendering needs no cluster and gives the same text each time, in an order in which it can be
// applied.
func TestRender(t *testing.T) {
	invitation := filepath.Join(t.TempDir(), "east.yaml")
	m := objects.Membership{ClusterID: "east", ClusterSet: "prod", Namespace: "seamark-broker", Server: "https://broker:6443", Token: "secret"}
	text, err := brokeradmin.EncodeSecret(m)
	if err != nil {
		t.Fatal(err)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	for path, content := range map[string][]byte{invitation: text, values: []byte("dataPlane: nftables\ndns: {replicas: 5}\n")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const namespace, crd = "Namespace seamark-system", "CustomResourceDefinition serviceexports.multicluster.x-k8s.io"
	for _, test := range []struct {
		args       []string
		with, lack []string
	}{
		{[]string{"chart", "render"},
			[]string{crd, namespace, "Secret seamark-broker", "DaemonSet seamark-proxy", "Deployment seamark-agent"},
			[]string{"Secret seamark-invitation"}},
		{[]string{"chart", "render", "--set", "proxy.failover=false"}, []string{crd, namespace, "Deployment seamark-agent"},
			[]string{"DaemonSet seamark-proxy"}},
		{[]string{"chart", "render", "--invitation", invitation, "-f", values, "--set", "dns.replicas=4"},
			[]string{crd, namespace, "Secret seamark-invitation", "DaemonSet seamark-proxy"}, nil},
		{[]string{"chart", "render", "--skip-crds"}, []string{namespace, "Deployment seamark-dns"}, []string{crd}},
		{[]string{"chart", "render", "--skip-namespace"}, []string{crd, "Deployment seamark-dns"}, []string{namespace}},
		{[]string{"broker", "deploy", "--render", "--clusterset", "prod", "-n", "hub"},
			[]string{"CustomResourceDefinition clusters.seamark.dev", "Namespace hub", "ValidatingAdmissionPolicy seamark-broker-owned",
				"PriorityLevelConfiguration seamark-members.hub", "ClusterSet prod"}, nil},
	} {
		t.Run(strings.Join(test.args[:2], " ")+" "+strings.Join(test.args[2:], " "), func(t *testing.T) {
			first := printed(t, test.args...)
			if second := printed(t, test.args...); second != first {
				t.Error("rendering twice gives different texts")
			}
			got := manifests(t, first)
			for at, last := 0, -1; at < len(test.with); at++ {
				found := slices.Index(got, test.with[at])
				if found <= last {
					t.Errorf("%s is missing, or before %q: %v", test.with[at], test.with[max(at-1, 0)], got)
				}
				last = found
			}
			for _, name := range test.lack {
				if slices.Contains(got, name) {
					t.Errorf("%s is there", name)
				}
			}
		})
	}
	if got := printed(t, "chart", "render", "-f", values, "--set", "dns.replicas=4"); !strings.Contains(got, "replicas: 4\n") {
		t.Error("--set does not win over the file")
	}
	for flags, standard := range map[string]string{"": "privileged", "-f " + values: "privileged", "--set proxy.failover=false": "restricted"} {
		got := printed(t, append([]string{"chart", "render"}, strings.Fields(flags)...)...)
		if !strings.Contains(got, "pod-security.kubernetes.io/enforce: "+standard+"\n") {
			t.Errorf("%s: the namespace does not enforce %s", flags, standard)
		}
	}
}

// What cannot be rendered is refused before anything is printed.
func TestRenderRefusals(t *testing.T) {
	for says, args := range map[string][]string{
		"value must be one of":            {"chart", "render", "--set", "dataPlane=ebpf"},
		"write it as KEY=VALUE":           {"chart", "render", "--set", "dataPlane"},
		"read the values":                 {"chart", "render", "-f", "does-not-exist.yaml"},
		"read the invitation":             {"chart", "render", "--invitation", "does-not-exist.yaml"},
		"cannot be the name of a cluster": {"broker", "deploy", "--render", "--clusterset", "No"},
	} {
		var out, errOut bytes.Buffer
		if code := Run(t.Context(), args, strings.NewReader(""), &out, &errOut); code == exitOK || out.Len() > 0 ||
			!strings.Contains(errOut.String(), says) {
			t.Errorf("%v: exit %d, %d bytes: %s", args, code, out.Len(), errOut.String())
		}
	}
}
