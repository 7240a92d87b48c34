package chart

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// rendered renders the chart with values in the syntax of --set and returns its objects by kind and
// name.
func rendered(t *testing.T, set ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	values := map[string]any{}
	for _, text := range set {
		if err := strvals.ParseInto(text, values); err != nil {
			t.Fatal(err)
		}
	}
	return renderedWith(t, values)
}

func renderedWith(t *testing.T, values map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := Render(values)
	if err != nil {
		t.Fatalf("%v: %v", values, err)
	}
	out := map[string]*unstructured.Unstructured{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%v: %v", values, err)
		}
		if len(obj.Object) > 0 {
			out[obj.GetKind()+" "+obj.GetName()] = obj
		}
	}
}

// at returns the value at a path of fields. [0] is the first element of a list.
func at(t *testing.T, obj *unstructured.Unstructured, path string) any {
	t.Helper()
	if obj == nil {
		return nil
	}
	var value any = obj.Object
	for part := range strings.SplitSeq(path, "/") {
		switch typed := value.(type) {
		case map[string]any:
			value = typed[part]
		case []any:
			if part != "[0]" {
				t.Fatalf("%s: only the first element of a list is supported", path)
			}
			if len(typed) == 0 {
				return nil
			}
			value = typed[0]
		default:
			return nil
		}
	}
	return value
}

const (
	agentPod       = "spec/template/spec"
	agentContainer = "spec/template/spec/containers/[0]"
)

// Every option changes what it is for.
func TestOptions(t *testing.T) {
	same := func(object, path string, want any) func(*testing.T, map[string]*unstructured.Unstructured) {
		return func(t *testing.T, o map[string]*unstructured.Unstructured) {
			if got := at(t, o[object], path); !equal(got, want) {
				t.Errorf("%s of %s is %v, want %v", path, object, got, want)
			}
		}
	}
	holds := func(object, path, want string) func(*testing.T, map[string]*unstructured.Unstructured) {
		return func(t *testing.T, o map[string]*unstructured.Unstructured) {
			switch got := at(t, o[object], path).(type) {
			case string:
				if !strings.Contains(got, want) {
					t.Errorf("%s of %s is %q without %q", path, object, got, want)
				}
			case []any:
				if !slices.Contains(got, any(want)) {
					t.Errorf("%s of %s is %v without %q", path, object, got, want)
				}
			default:
				t.Errorf("%s of %s is %v", path, object, got)
			}
		}
	}
	lacks := func(object, path, text string) func(*testing.T, map[string]*unstructured.Unstructured) {
		return func(t *testing.T, o map[string]*unstructured.Unstructured) {
			if got := at(t, o[object], path); got == nil || strings.Contains(fmt.Sprint(got), text) {
				t.Errorf("%s of %s is %v, with %q", path, object, got, text)
			}
		}
	}
	exists := func(names ...string) func(*testing.T, map[string]*unstructured.Unstructured) {
		return func(t *testing.T, o map[string]*unstructured.Unstructured) {
			for _, name := range names {
				if want := !strings.HasPrefix(name, "no "); (o[strings.TrimPrefix(name, "no ")] != nil) != want {
					t.Errorf("%s: rendered %t", name, !want)
				}
			}
		}
	}
	for _, test := range []struct {
		set     string
		without func(*testing.T, map[string]*unstructured.Unstructured)
		with    func(*testing.T, map[string]*unstructured.Unstructured)
	}{
		{"image.repository=example.org:5000/team/seamark", same("Deployment seamark-dns", agentContainer+"/image", "seamark.dev/seamark:dev"),
			same("Deployment seamark-dns", agentContainer+"/image", "example.org:5000/team/seamark:dev")},
		{"image.tag=v9", same("Deployment seamark-agent", agentContainer+"/image", "seamark.dev/seamark:dev"),
			same("Deployment seamark-agent", agentContainer+"/image", "seamark.dev/seamark:v9")},
		{"image.pullPolicy=Never", same("Deployment seamark-agent", agentContainer+"/imagePullPolicy", "IfNotPresent"),
			same("Deployment seamark-agent", agentContainer+"/imagePullPolicy", "Never")},
		{"image.pullSecrets={registry}", same("Deployment seamark-agent", agentPod+"/imagePullSecrets", nil),
			same("Deployment seamark-agent", agentPod+"/imagePullSecrets/[0]/name", "registry")},
		{"dataPlane=nftables", holds("DaemonSet seamark-proxy", agentContainer+"/args", "--failover-only"),
			lacks("DaemonSet seamark-proxy", agentContainer+"/args", "failover-only")},
		{"dataPlane=nftables", holds("Deployment seamark-agent", agentContainer+"/args", "--failover-proxy"),
			lacks("Deployment seamark-agent", agentContainer+"/args", "failover-proxy")},
		{"proxy.failover=false", exists(proxyObjects...), exists(without(proxyObjects)...)},
		{"proxy.failover=false", holds("Deployment seamark-agent", agentContainer+"/args", "--failover-proxy"),
			lacks("Deployment seamark-agent", agentContainer+"/args", "failover-proxy")},
		{"proxy.failover=null", exists(proxyObjects...), exists(without(proxyObjects)...)}, // helm upgrade --reuse-values
		{"dataPlane=nftables,proxy.failover=false", exists(), exists(proxyObjects...)},
		{"dataPlane=none", exists(proxyObjects...), exists(without(proxyObjects)...)},
		{"dataPlane=none", agentMayCreate("services", true), agentMayCreate("services", false)},
		{"besideSubmariner=true", exists(), holds("Deployment seamark-agent", agentContainer+"/args", "--beside-submariner")},
		{"createNamespaces=true", agentMayCreate("namespaces", false), agentMayCreate("namespaces", true)},
		{"createNamespaces=true", exists(), holds("Deployment seamark-agent", agentContainer+"/args", "--create-namespaces")},
		{"zone=example.internal", holds("ConfigMap seamark-dns", "data/Corefile", "clusterset clusterset.local "),
			holds("ConfigMap seamark-dns", "data/Corefile", "clusterset example.internal ")},
		{"zone=example.internal", zoneAnnotation("clusterset.local"), zoneAnnotation("example.internal")},
		{"logLevel=debug", holds("Deployment seamark-agent", agentContainer+"/args", "--log-level=info"),
			holds("Deployment seamark-agent", agentContainer+"/args", "--log-level=debug")},
		{"logLevel=debug", exists(), holds("ConfigMap seamark-dns", "data/Corefile", "    log\n")},
		{"profiling=true", lacks("ConfigMap seamark-dns", "data/Corefile", "pprof"),
			holds("ConfigMap seamark-dns", "data/Corefile", "pprof 127.0.0.1:9444\n")},
		{"profiling=true", lacks("Deployment seamark-agent", agentContainer+"/args", "pprof"),
			holds("Deployment seamark-agent", agentContainer+"/args", "--pprof-bind-address=127.0.0.1:9444")},
		{"profiling=true,dataPlane=nftables", exists(),
			holds("DaemonSet seamark-proxy", agentContainer+"/args", "--pprof-bind-address=127.0.0.1:9444")},
		{"tolerations[0].operator=Exists", same("Deployment seamark-dns", agentPod+"/tolerations", nil),
			same("Deployment seamark-dns", agentPod+"/tolerations/[0]/operator", "Exists")},
		{"priorityClassName=high", exists("PriorityClass seamark-critical"), exists("no PriorityClass seamark-critical")},
		{"priorityClassName=high", same("Deployment seamark-dns", agentPod+"/priorityClassName", "seamark-critical"),
			same("Deployment seamark-dns", agentPod+"/priorityClassName", "high")},
		{"agent.replicas=1", exists("PodDisruptionBudget seamark-agent"),
			exists("no PodDisruptionBudget seamark-agent", "PodDisruptionBudget seamark-dns")},
		{"agent.replicas=3", same("Deployment seamark-agent", "spec/replicas", int64(2)),
			same("Deployment seamark-agent", "spec/replicas", int64(3))},
		{"agent.lease.renewEvery=2s",
			holds("Deployment seamark-agent", agentContainer+"/args", "--renew-every="+objects.RenewEvery.String()),
			holds("Deployment seamark-agent", agentContainer+"/args", "--renew-every=2s")},
		{"agent.lease.duration=1m",
			holds("Deployment seamark-agent", agentContainer+"/args", "--lease-duration="+objects.LeaseDuration.String()),
			holds("Deployment seamark-agent", agentContainer+"/args", "--lease-duration=1m")},
		{"dns.replicas=5", same("Deployment seamark-dns", "spec/replicas", int64(2)), same("Deployment seamark-dns", "spec/replicas", int64(5))},
		{"beacon.enabled=false", exists(beaconObjects...), exists(without(beaconObjects)...)},
		{"beacon.enabled=false", exists(), lacks("Role seamark-agent", "rules", "seamark-beacon")},
		{"beacon=null", exists(beaconObjects...), exists(without(beaconObjects)...)}, // helm upgrade --reuse-values
		{"beacon.replicas=5", same("Deployment seamark-beacon", "spec/replicas", int64(3)),
			same("Deployment seamark-beacon", "spec/replicas", int64(5))},
		{"beacon.replicas=1", exists("PodDisruptionBudget seamark-beacon"), exists("no PodDisruptionBudget seamark-beacon")},
		{"beacon.resources.limits.memory=99Mi", same("Deployment seamark-beacon", agentContainer+"/resources/limits/memory", "64Mi"),
			same("Deployment seamark-beacon", agentContainer+"/resources/limits/memory", "99Mi")},
		{"ui.enabled=true", exists(without(uiObjects)...), exists(uiObjects...)},
		{"ui=null", exists(without(uiObjects)...), exists(without(uiObjects)...)}, // helm upgrade --reuse-values
		{"ui.enabled=true,ui.resources.limits.memory=99Mi", exists(),
			same("Deployment seamark-ui", agentContainer+"/resources/limits/memory", "99Mi")},
		{"ui.enabled=true,networkPolicy.enabled=true", exists("no NetworkPolicy seamark-ui"),
			func(t *testing.T, o map[string]*unstructured.Unstructured) {
				ports := at(t, o["NetworkPolicy seamark-ui"], "spec/ingress/[0]/ports")
				if got := fmt.Sprint(ports); got != "[map[port:probes protocol:TCP]]" {
					t.Errorf("the policy of the page opens %s", got)
				}
			}},
		{"dns.ttl=30", holds("ConfigMap seamark-dns", "data/Corefile", "        ttl 5\n"),
			holds("ConfigMap seamark-dns", "data/Corefile", "        ttl 30\n")},
		{"dns.locality={headless,classic}", holds("ConfigMap seamark-dns", "data/Corefile", "locality classic\n"),
			holds("ConfigMap seamark-dns", "data/Corefile", "locality headless classic\n")},
		{"dns.locality={none}", exists(), holds("ConfigMap seamark-dns", "data/Corefile", "locality none\n")},
		{"dns.locality={headless}", lacks("ClusterRole seamark-dns", "rules", "nodes"), dnsReadsNodes},
		{"dns.locality={headless},dns.topologyZone=a-1", holds("ConfigMap seamark-dns", "data/Corefile", "ns seamark-system/seamark-dns"),
			lacks("ClusterRole seamark-dns", "rules", "nodes")},
		{"dns.topologyZone=a-1", lacks("ConfigMap seamark-dns", "data/Corefile", "        zone "),
			holds("ConfigMap seamark-dns", "data/Corefile", "        zone a-1\n")},
		{"dns.clusterID=east.eu", lacks("ConfigMap seamark-dns", "data/Corefile", "        cluster "),
			holds("ConfigMap seamark-dns", "data/Corefile", "        cluster east.eu\n")},
		{"dns.lighthouseNames=true", lacks("ConfigMap seamark-dns", "data/Corefile", "lighthouse-names"),
			holds("ConfigMap seamark-dns", "data/Corefile", "        lighthouse-names\n")},
		{"dns.startupTimeout=2m", holds("ConfigMap seamark-dns", "data/Corefile", "startup_timeout 5s\n"),
			holds("ConfigMap seamark-dns", "data/Corefile", "startup_timeout 2m\n")},
		{"dns.fallthrough={in-addr.arpa,ip6.arpa},dns.upstreams={10.0.0.53}", lacks("ConfigMap seamark-dns", "data/Corefile", "fallthrough"),
			holds("ConfigMap seamark-dns", "data/Corefile", "        fallthrough in-addr.arpa ip6.arpa\n    }\n    forward . 10.0.0.53\n")},
		{"agent.resources.limits.memory=1Gi", same("Deployment seamark-agent", agentContainer+"/resources/limits/memory", "512Mi"),
			same("Deployment seamark-agent", agentContainer+"/resources/limits/memory", "1Gi")},
		{"dns.resources.requests.cpu=2", same("Deployment seamark-dns", agentContainer+"/resources/requests/cpu", "50m"),
			same("Deployment seamark-dns", agentContainer+"/resources/requests/cpu", int64(2))},
		{"dataPlane=nftables,metrics.readers[0].namespace=monitoring,metrics.readers[0].name=prometheus",
			exists("ClusterRole seamark-metrics", "ServiceAccount seamark-metrics"),
			func(t *testing.T, o map[string]*unstructured.Unstructured) {
				subjects, _, _ := unstructured.NestedSlice(o["ClusterRoleBinding seamark-metrics"].Object, "subjects")
				want := map[string]any{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus"}
				if len(subjects) != 2 || !reflect.DeepEqual(subjects[1], want) {
					t.Errorf("the readers of the proxies' metrics are %v", subjects)
				}
			}},
		{"dataPlane=nftables,metrics.serviceMonitor.enabled=true", exists(),
			func(t *testing.T, o map[string]*unstructured.Unstructured) {
				endpoints, _, _ := unstructured.NestedSlice(o["ServiceMonitor seamark"].Object, "spec", "endpoints")
				ports, _, _ := unstructured.NestedSlice(o["Service seamark-metrics"].Object, "spec", "ports")
				if len(endpoints) != 2 || len(ports) != 2 {
					t.Errorf("the ServiceMonitor has the endpoints %v, its Service the ports %v", endpoints, ports)
				}
			}},
		{"dataPlane=nftables,proxy.masquerade=all", exists(),
			holds("DaemonSet seamark-proxy", agentContainer+"/args", "--masquerade=all")},
		{"dataPlane=nftables,proxy.resources.requests.memory=99Mi", exists(),
			same("DaemonSet seamark-proxy", agentContainer+"/resources/requests/memory", "99Mi")},
		{"metrics.serviceMonitor.enabled=true", exists("no ServiceMonitor seamark", "no Service seamark-metrics"),
			exists("ServiceMonitor seamark", "Service seamark-metrics")},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.release=prometheus", exists(),
			same("ServiceMonitor seamark", "metadata/labels/release", "prometheus")},
		{"networkPolicy.enabled=true", exists("no NetworkPolicy seamark-agent"),
			exists("NetworkPolicy seamark-agent", "NetworkPolicy seamark-dns")},
		{"networkPolicy.enabled=true", exists("no NetworkPolicy seamark-beacon"),
			func(t *testing.T, o map[string]*unstructured.Unstructured) {
				ports := at(t, o["NetworkPolicy seamark-beacon"], "spec/ingress/[0]/ports")
				if got := fmt.Sprint(ports); got != "[map[port:beacon protocol:UDP] map[port:probes protocol:TCP]]" {
					t.Errorf("the policy of the beacons opens %s", got)
				}
			}},
		{"clusterDNS.configure=false", exists("Role seamark-agent-cluster-dns", "RoleBinding seamark-agent-cluster-dns"),
			exists("no Role seamark-agent-cluster-dns", "no RoleBinding seamark-agent-cluster-dns")},
		{"clusterDNS.configure=false", holds("Deployment seamark-agent", agentContainer+"/args", "--configure-cluster-dns"),
			lacks("Deployment seamark-agent", agentContainer+"/args", "cluster-dns")},
		{"clusterDNS=null", exists(), exists("no Role seamark-agent-cluster-dns")}, // helm upgrade --reuse-values
		{"admissionPolicies=false", exists("ValidatingAdmissionPolicy seamark-identity"),
			exists("no ValidatingAdmissionPolicy seamark-identity")},
	} {
		t.Run(test.set, func(t *testing.T) {
			test.without(t, rendered(t))
			test.with(t, rendered(t, test.set))
		})
	}
}

// beaconObjects are what the chart has for beacons.
var beaconObjects = []string{
	"Deployment seamark-beacon", "Service seamark-beacon", "Secret seamark-beacon", "ServiceAccount seamark-beacon",
	"PodDisruptionBudget seamark-beacon",
}

// proxyObjects are what the chart has for the proxy.
var proxyObjects = []string{
	"DaemonSet seamark-proxy", "ServiceAccount seamark-proxy", "ClusterRole seamark-proxy", "ClusterRoleBinding seamark-proxy",
	"ClusterRole seamark-metrics", "ServiceAccount seamark-metrics",
}

// uiObjects are what the chart has for the page.
var uiObjects = []string{
	"Deployment seamark-ui", "ServiceAccount seamark-ui", "ClusterRole seamark-ui", "ClusterRoleBinding seamark-ui", "Role seamark-ui",
	"RoleBinding seamark-ui", "Role seamark-ui-dns", "RoleBinding seamark-ui-dns",
}

// The page reads: no rule of its roles has another verb, and no port of it is open in the network.
func TestPageOnlyReads(t *testing.T) {
	all := rendered(t, "ui.enabled=true", "dataPlane=nftables")
	for _, name := range []string{"ClusterRole seamark-ui", "Role seamark-ui", "Role seamark-ui-dns"} {
		rules, _, err := unstructured.NestedSlice(all[name].Object, "rules")
		if err != nil || len(rules) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, rule := range rules {
			verbs, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "verbs")
			for _, verb := range verbs {
				if verb != "get" && verb != "list" && verb != "watch" {
					t.Errorf("%s may %s: %v", name, verb, rule)
				}
			}
			resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			names, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resourceNames")
			if slices.Contains(resources, "secrets") && !slices.Equal(names, []string{"seamark-broker"}) {
				t.Errorf("%s reads other Secrets: %v", name, rule)
			}
		}
	}
	ports := at(t, all["Deployment seamark-ui"], agentContainer+"/ports")
	if got := fmt.Sprint(ports); got != "[map[containerPort:9442 name:probes protocol:TCP]]" {
		t.Errorf("ports of the page: %s", got)
	}
	if _, exposed := all["Service seamark-ui"]; exposed {
		t.Error("a Service exposes the page")
	}
}

// without turns names of objects into those that must not exist.
func without(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "no " + name
	}
	return out
}

// Beacons run while API server and agent are away, have no access to the former, and are spread.
func TestBeaconPods(t *testing.T) {
	all := rendered(t, "networkPolicy.enabled=true")
	beacon := all["Deployment seamark-beacon"]
	for path, want := range map[string]any{
		agentPod + "/automountServiceAccountToken":                    false,
		agentPod + "/securityContext/runAsNonRoot":                    true,
		agentPod + "/priorityClassName":                               "seamark-critical",
		agentPod + "/topologySpreadConstraints/[0]/topologyKey":       "kubernetes.io/hostname",
		agentPod + "/topologySpreadConstraints/[0]/whenUnsatisfiable": "ScheduleAnyway",
		agentPod + "/volumes/[0]/secret/optional":                     true,
		agentContainer + "/securityContext/readOnlyRootFilesystem":    true,
		agentContainer + "/securityContext/allowPrivilegeEscalation":  false,
		agentContainer + "/securityContext/capabilities/drop/[0]":     "ALL",
		agentContainer + "/livenessProbe/httpGet/path":                "/healthz",
		agentContainer + "/ports/[0]/containerPort":                   int64(wire.Port),
		agentContainer + "/ports/[0]/protocol":                        "UDP",
		agentContainer + "/args/[0]":                                  fmt.Sprintf("--listen=:%d", wire.Port),
	} {
		if got := at(t, beacon, path); !equal(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if got := at(t, all["Service seamark-beacon"], "spec/clusterIP"); got != "None" {
		t.Errorf("the ClusterIP is %v", got)
	}
	if _, bound := all["ClusterRoleBinding seamark-beacon"]; bound {
		t.Error("beacons have a role")
	}
}

func equal(got, want any) bool {
	if n, ok := got.(float64); ok {
		got = int64(n)
	}
	return got == want
}

// dnsReadsNodes checks that the DNS server knows its node and may read it.
func dnsReadsNodes(t *testing.T, o map[string]*unstructured.Unstructured) {
	t.Helper()
	if rules := fmt.Sprint(at(t, o["ClusterRole seamark-dns"], "rules")); !strings.Contains(rules, "resources:[nodes] verbs:[get]") {
		t.Errorf("the DNS server may not read nodes: %s", rules)
	}
	if env := fmt.Sprint(at(t, o["Deployment seamark-dns"], agentContainer+"/env")); !strings.Contains(env, "NODE_NAME") {
		t.Errorf("the DNS server does not know its node: %s", env)
	}
}

// zoneAnnotation checks the annotation by which the seamark command knows the zone.
func zoneAnnotation(want string) func(*testing.T, map[string]*unstructured.Unstructured) {
	return func(t *testing.T, o map[string]*unstructured.Unstructured) {
		t.Helper()
		if got := o["Service seamark-dns"].GetAnnotations()[v1alpha1.AnnotationZone]; got != want {
			t.Errorf("annotation %s of Service seamark-dns is %q, want %q", v1alpha1.AnnotationZone, got, want)
		}
	}
}

// agentMayCreate checks whether the agent's ClusterRole allows it to create objects of a kind.
func agentMayCreate(resource string, want bool) func(*testing.T, map[string]*unstructured.Unstructured) {
	return func(t *testing.T, o map[string]*unstructured.Unstructured) {
		t.Helper()
		may := false
		rules, _, _ := unstructured.NestedSlice(o["ClusterRole seamark-agent"].Object, "rules")
		for _, rule := range rules {
			r := rule.(map[string]any)
			may = may || (slices.Contains(r["resources"].([]any), any(resource)) && slices.Contains(r["verbs"].([]any), any("create")))
		}
		if may != want {
			t.Errorf("the agent may create %s: %v, want %v", resource, may, want)
		}
	}
}

// The schema describes every value of values.yaml. It rejects any other, and the error says where
// it is.
func TestSchema(t *testing.T) {
	for _, test := range []struct{ set, says string }{
		{"dataPlane=ebpf", "at '/dataPlane': value must be one of 'service', 'nftables', 'none'"},
		{"replicas=3", "additional properties 'replicas' not allowed"},
		{"agent.replica=3", "at '/agent': additional properties 'replica' not allowed"},
		{"beacon.replicas=0", "at '/beacon/replicas': minimum: got 0, want 1"},
		{"beacon.port=9", "at '/beacon': additional properties 'port' not allowed"},
		{"dns.replicas=0", "at '/dns/replicas': minimum: got 0, want 1"},
		{"agent.replicas=two", "at '/agent/replicas': got string, want integer"},
		{"agent.lease.duration=soon", "at '/agent/lease/duration'"},
		{"agent.lease.renewEvery=0s", "at '/agent/lease/renewEvery'"},
		{"agent.lease.renew=5s", "at '/agent/lease': additional properties 'renew' not allowed"},
		{"dns.ttl=3601", "at '/dns/ttl': maximum: got 3,601, want 3,600"},
		{"dns.locality={near}", "at '/dns/locality/0': value must be one of 'headless', 'classic'"},
		{"dns.clusterID=East", "at '/dns/clusterID'"},
		{"dns.topologyZone=a b", "at '/dns/topologyZone'"},
		{"dns.lighthouseNames=yes", "at '/dns/lighthouseNames'"},
		{"dns.startupTimeout=soon", "at '/dns/startupTimeout'"},
		{"dns.fallthrough={a{}", "at '/dns/fallthrough/0'"},
		{"dns.upstreams={dns.example}", "at '/dns/upstreams/0'"},
		{"dns.upstreams={10.0.0.53}", "dns.fallthrough and dns.upstreams go together"},
		{"dns.lease.duration=20s", "at '/dns': additional properties 'lease' not allowed"},
		{"image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"},
		{"image.tag=a/b", "at '/image/tag'"},
		{"image.repository=Example.org/x", "at '/image/repository'"},
		{"createNamespaces=perhaps", "at '/createNamespaces': got string, want boolean"},
		{"zone=Cluster_Set", "at '/zone'"},
		{"logLevel=loud", "at '/logLevel': value must be one of"},
		{"metrics.serviceMonitor.on=true", "at '/metrics/serviceMonitor'"},
		{"networkPolicy=true", "at '/networkPolicy': got boolean, want object"},
		{"agent.resources.limits.memory=lots", "at '/agent/resources/limits/memory'"},
	} {
		values, err := strvals.Parse(test.set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Render(values); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.set, err, test.says)
		}
	}
}

// The package that users install with helm is the chart that join installs.
func TestPackage(t *testing.T) {
	path, err := Package(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got, err := loader.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "seamark-"+want.Metadata.Version+".tgz" {
		t.Errorf("the package is %s", filepath.Base(path))
	}
	if len(got.Templates) != len(want.Templates) || len(got.CRDObjects()) != 4 || got.Metadata.AppVersion != want.Metadata.AppVersion {
		t.Errorf("%d templates, want %d; %d CRDs, want 4", len(got.Templates), len(want.Templates), len(got.CRDObjects()))
	}
}

func TestChartVersion(t *testing.T) {
	for build, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef0-dirty": "1.2.3-4-gabcdef0-dirty", "1.2.3+x": "1.2.3+x",
		"dev": "0.0.0-build.gdev", "0123456": "0.0.0-build.g0123456", "40be53e-dirty": "0.0.0-build.g40be53e-dirty", "": "0.0.0-build.g",
	} {
		if got := chartVersion(build); got != want {
			t.Errorf("%q becomes %s, want %s", build, got, want)
		}
	}
}

// Every object is labelled as part of Seamark.
func TestLabels(t *testing.T) {
	all := rendered(t, "dataPlane=nftables", "metrics.serviceMonitor.enabled=true", "networkPolicy.enabled=true")
	if len(all) < 30 {
		t.Errorf("only %d objects: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	for name, obj := range all {
		if obj.GetLabels()["app.kubernetes.io/part-of"] != "seamark" {
			t.Errorf("%s has no label part-of", name)
		}
	}
}
