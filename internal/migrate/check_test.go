package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func name(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// healthy returns the facts of a cluster that runs Lighthouse and can be moved.
func healthy() Facts {
	return Facts{
		Submariner: &Submariner{
			Namespace: "submariner-operator", Version: "0.24.0", ClusterID: "east", DiscoveryEnabled: true, DiscoveryExists: true,
			OperatorRunning: true, AgentExists: true, AgentRunning: true, DNSRunning: true, Clusters: []string{"east", "west"},
		},
		Kinds: []Kind{
			{Name: "serviceimports.multicluster.x-k8s.io", Stored: []string{"v1alpha1"}}, {Name: "clusterproperties.about.k8s.io"},
		},
		Services: []Service{{
			NamespacedName: name("shop", "web"), Imported: true,
			Lighthouse: map[string][]string{"west": {"10.97.0.1"}}, Seamark: map[string][]string{},
		}},
		DNS: DNS{Lighthouse: true},
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Facts)
		want   []string // code and severity
		says   string   // in the finding
	}{
		{"healthy", func(*Facts) {}, nil, ""},
		{"patch release", func(f *Facts) { f.Submariner.Version = "v0.24.3" }, nil, ""},
		{"no Submariner", func(f *Facts) { f.Submariner = nil }, []string{"no-lighthouse blocks"}, "no Submariner resource"},
		{"tunnels alone", func(f *Facts) { f.Submariner.DiscoveryEnabled = false }, []string{"no-lighthouse blocks"}, "without service discovery"},
		{"finished", func(f *Facts) {
			f.Submariner.DiscoveryEnabled, f.Phase = false, v1alpha1.MigrationFinished
		}, nil, ""},
		{"older", func(f *Facts) { f.Submariner.Version = "0.19.2" }, []string{"version blocks"}, "subctl upgrade"},
		{"newer", func(f *Facts) { f.Submariner.Version = "0.240.0" }, []string{"version blocks"}, `"0.240.0"`},
		{"Globalnet", func(f *Facts) { f.Submariner.GlobalCIDR = "242.0.0.0/8" }, []string{"globalnet blocks"}, "242.0.0.0/8"},
		{"invalid id", func(f *Facts) { f.Submariner.ClusterID = "East_1" }, []string{"cluster-id blocks"}, "East_1"},
		{"member under another id", func(f *Facts) {
			f.Member = &Member{ClusterID: "e", ClusterSet: "fleet"}
		}, []string{"cluster-id blocks"}, "--clusterid east"},
		{"other property", func(f *Facts) { f.ClusterID = "e" }, []string{"cluster-id blocks"}, "change the property to east"},
		{"same property", func(f *Facts) { f.ClusterID = "east" }, nil, ""},
		{"ranges", func(f *Facts) {
			f.Submariner.Ranges = map[string][]netip.Prefix{
				"east": {netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.96.0.0/12")},
				"west": {netip.MustParsePrefix("10.97.0.0/16")},
			}
		}, []string{"ranges blocks"}, "range 10.96.0.0/12 of this cluster and 10.97.0.0/16 of cluster west overlap"},
		{"other ranges", func(f *Facts) {
			f.Submariner.Ranges = map[string][]netip.Prefix{
				"east": {netip.MustParsePrefix("10.1.0.0/16")}, "west": {netip.MustParsePrefix("10.2.0.0/16")},
			}
		}, nil, ""},
		{"old imports", func(f *Facts) {
			f.OldImports = []types.NamespacedName{name("submariner-operator", "web-shop-west")}
		}, []string{"old-imports blocks"}, "1 ServiceImport is in the form of Lighthouse before 0.15, one per cluster"},
		{"clusterset IPs", func(f *Facts) { f.Services[0].IPs = []string{"243.0.0.1"} }, []string{"clusterset-ips blocks"},
			"1 service has a clusterset IP"},
		{"clusterset IPs of Seamark", func(f *Facts) { f.Services[0].IPs, f.Services[0].Managed = []string{"243.0.0.1"}, true }, nil, ""},
		{"newer CRD", func(f *Facts) { f.Kinds[0].Refused = "newer" }, []string{"crds blocks"}, "serviceimports"},
		{"stored as v1beta1", func(f *Facts) { f.Kinds[0].Stored = []string{"v1alpha1", "v1beta1"} }, []string{"stored-versions warns"},
			"v1alpha1 and v1beta1"},
		{"managed by GitOps", func(f *Facts) { f.Submariner.ManagedBy = "Argo CD" }, []string{"managed-submariner warns"},
			"let Argo CD set spec.coreDNSCustomConfig to {configMapName: seamark-unused-lighthouse-dns, namespace: submariner-operator}"},
		{"other DNS", func(f *Facts) { f.DNS = DNS{Unsupported: "there is no Corefile"} }, []string{"dns-configuration warns"}, "--dns-changed"},
		{"custom domains", func(f *Facts) { f.Submariner.CustomDomains = []string{"a.b"} }, []string{"custom-domains warns"}, "a.b"},
		{"reserved namespace", func(f *Facts) { f.Services[0].Namespace = "kube-public" }, []string{"reserved-namespaces warns"},
			"--allow-namespaces"},
		{"conflict", func(f *Facts) {
			f.Exports = []Export{{NamespacedName: name("shop", "web"), Conflict: "ports differ"}}
		}, []string{"conflicts warns"}, "joined first decides"},
		{"service types", func(f *Facts) {
			for i, kind := range []corev1.ServiceType{
				corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName, "", corev1.ServiceTypeNodePort,
			} {
				f.Exports = append(f.Exports, Export{NamespacedName: name("shop", fmt.Sprint(i)), ServiceType: kind})
			}
		}, []string{"service-types warns"}, "shop/1, shop/4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := healthy()
			test.change(&f)
			var got []string
			var text strings.Builder
			for _, finding := range Check(f) {
				got = append(got, fmt.Sprintf("%s %s", finding.Code, finding.Severity))
				fmt.Fprintln(&text, finding.Detail, finding.Fix)
				if finding.Fix == "" {
					t.Errorf("%s has no cure", finding.Code)
				}
			}
			if !slices.Equal(got, test.want) || !strings.Contains(text.String(), test.says) {
				t.Errorf("got %v, want %v that says %q:\n%s", got, test.want, test.says, &text)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	services := []Service{
		{NamespacedName: name("shop", "web"), Lighthouse: map[string][]string{"east": {"1.1.1.1"}, "west": {"2.2.2.2"}},
			Seamark: map[string][]string{"east": {"1.1.1.1"}}},
		{NamespacedName: name("shop", "db"), Lighthouse: map[string][]string{"east": {"3.3.3.3", "4.4.4.4"}, "west": {}},
			Seamark: map[string][]string{"east": {"4.4.4.4"}}},
		{NamespacedName: name("shop", "new"), Lighthouse: map[string][]string{}, Seamark: map[string][]string{"north": {"5.5.5.5"}}},
	}
	want := []string{"shop/db: Seamark has not 3.3.3.3 of cluster east", "shop/web: Seamark has no endpoints of cluster west"}
	if got := Missing(services); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want = []string{"shop/new: Lighthouse has no endpoints of cluster north"}
	if got := MissingInLighthouse(services); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
