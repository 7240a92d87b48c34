package chart

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// The proxy for failovers is left out only where it cannot run or has no effect, and never against
// the choice of the user.
func TestDecideFailover(t *testing.T) {
	const service, nftables, none = v1alpha1.DataPlaneService, v1alpha1.DataPlaneNFTables, v1alpha1.DataPlaneNone
	for name, test := range map[string]struct {
		in   failoverInput
		want WithoutFailover
	}{
		"nothing against it":              {failoverInput{dataPlane: service}, ""},
		"the default data plane":          {failoverInput{standard: "restricted"}, NamespaceRefuses},
		"restricted by the user":          {failoverInput{dataPlane: service, standard: "restricted"}, NamespaceRefuses},
		"baseline by the user":            {failoverInput{dataPlane: service, standard: "baseline"}, NamespaceRefuses},
		"privileged by the user":          {failoverInput{dataPlane: service, standard: "privileged"}, ""},
		"restricted, of Seamark":          {failoverInput{dataPlane: service, standard: "restricted", managed: true}, ""},
		"Cilium beside kube-proxy":        {failoverInput{dataPlane: service, replacement: "false"}, ""},
		"Cilium, partial":                 {failoverInput{dataPlane: service, replacement: "partial"}, ""},
		"Cilium replaces kube-proxy":      {failoverInput{dataPlane: service, replacement: "true"}, CiliumTranslates},
		"Cilium before 1.14":              {failoverInput{dataPlane: service, replacement: "strict"}, CiliumTranslates},
		"Cilium, and restricted":          {failoverInput{dataPlane: service, replacement: "true", standard: "restricted"}, CiliumTranslates},
		"chosen, restricted":              {failoverInput{dataPlane: service, standard: "restricted", chosen: true}, ""},
		"chosen, Cilium":                  {failoverInput{dataPlane: service, replacement: "true", chosen: true}, ""},
		"the data plane needs the proxy":  {failoverInput{dataPlane: nftables, standard: "restricted"}, ""},
		"the data plane needs no proxies": {failoverInput{dataPlane: none, replacement: "true"}, ""},
	} {
		if got := decideFailover(test.in); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A note says what was turned off, why, and what to do.
func TestFailoverNotes(t *testing.T) {
	for why, want := range map[WithoutFailover]string{
		CiliumTranslates: "proxy.failover is set to false: Cilium replaces kube-proxy, so seamark-proxy would see no packets " +
			"and failovers take as long as Cilium needs to follow the EndpointSlices; to run it all the same, join with --set proxy.failover=true",
		NamespaceRefuses: "proxy.failover is set to false: namespace seamark-system enforces the pod security standard baseline, " +
			"which does not admit seamark-proxy, and with kube-proxy alone failovers take some seconds longer; to run it: " +
			"kubectl label namespace seamark-system --overwrite pod-security.kubernetes.io/enforce=privileged, " +
			"then join with --set proxy.failover=true",
		"": "",
	} {
		if got := why.note("baseline"); got != want {
			t.Errorf("%s: %s", why, got)
		}
	}
}

func TestChoosesFailover(t *testing.T) {
	for _, test := range []struct {
		values map[string]any
		want   bool
	}{
		{nil, false},
		{map[string]any{"proxy": nil}, false},
		{map[string]any{"proxy": map[string]any{"masquerade": "all"}}, false},
		{map[string]any{"proxy": map[string]any{"failover": false}}, true},
		{map[string]any{"proxy": map[string]any{"failover": true}}, true},
		{map[string]any{"proxy": map[string]any{"failover": nil}}, true},
	} {
		if got := choosesFailover(test.values); got != test.want {
			t.Errorf("%v: %t", test.values, got)
		}
	}
}

// The advice to do without the proxy is given if admission refused it, and the user did not choose
// it.
func TestAdviseOnRefusal(t *testing.T) {
	daemonSets := schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	denied := apierrors.NewForbidden(daemonSets, "seamark-proxy", errors.New("denied by a policy"))
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: `admission webhook "x" denied the request`,
	}}
	byHelm := func(kind string, err error) error {
		return errors.Join(fmt.Errorf("server-side apply failed for object seamark-system/seamark-proxy %s: %w", kind, err))
	}
	chosen := map[string]any{"proxy": map[string]any{"failover": true}}
	for name, test := range map[string]struct {
		err    error
		values map[string]any
		want   bool
	}{
		"a policy":                  {fmt.Errorf("failed to create resource: %w", denied), nil, true},
		"a webhook":                 {byHelm("apps/v1, Kind=DaemonSet", webhook), nil, true},
		"chosen by the user":        {denied, chosen, false},
		"needed by the data plane":  {denied, map[string]any{"dataPlane": "nftables"}, false},
		"another object":            {byHelm("rbac.authorization.k8s.io/v1, Kind=ClusterRole", webhook), nil, false},
		"another DaemonSet":         {apierrors.NewForbidden(daemonSets, "other", errors.New("no")), nil, false},
		"the API server is away":    {byHelm("apps/v1, Kind=DaemonSet", errors.New("connection refused")), nil, false},
		"the API server is too old": {byHelm("apps/v1, Kind=DaemonSet", apierrors.NewNotFound(daemonSets, "seamark-proxy")), nil, false},
	} {
		got := adviseOnRefusal(test.err, test.values)
		const advice = "join with --set proxy.failover=false (failovers then take some seconds longer)"
		if strings.HasSuffix(got.Error(), advice) != test.want || !errors.Is(got, test.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
