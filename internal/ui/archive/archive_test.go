package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/ui/state"
)

var noon = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)

// pack returns an archive as seamark gather writes it.
func pack(t *testing.T, folder string, content map[string]string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, text := range content {
		if err := archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: noon}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// incident is an archive of a clusterset with one service, which east exports and west does not
// import.
func incident() map[string]string {
	property := func(name, value string) string {
		return "- metadata: {name: " + name + "}\n  spec: {value: " + value + "}\n"
	}
	member := "items:\n" + property("cluster.clusterset.k8s.io", "x") + property("clusterset.k8s.io", "prod")
	return map[string]string{
		"README.txt":                     "Written by seamark gather.",
		"clusters/east/logs/agent/a.log": "a line",
		"broker/clustersets.yaml":        "items:\n- metadata: {name: prod, namespace: seamark-broker}\n",
		"broker/clusters.yaml": "items:\n- metadata: {name: east, namespace: seamark-broker}\n" +
			"- metadata: {name: west, namespace: seamark-broker}\n",
		"broker/leases.yaml":         "items:\n" + lease("east") + lease("west"),
		"broker/exportrecords.yaml":  "items:\n" + record,
		"broker/endpointslices.yaml": "items:\n" + slice("seamark-broker", "web.shop.east.abc", onBroker),
		"clusters/east/serviceexports.yaml": "items:\n" +
			"- metadata: {name: web, namespace: shop, generation: 1, creationTimestamp: '2026-01-10T10:00:00Z'}\n" +
			"  status: {conditions: [{type: Valid, status: 'True', reason: Valid, observedGeneration: 1}, " +
			"{type: Ready, status: 'True', reason: Ready, observedGeneration: 1}]}\n",
		"clusters/east/exported/services.yaml": "items:\n- metadata: {name: web, namespace: shop}\n" +
			"  spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80, protocol: TCP}]}\n",
		"clusters/east/exported/endpointslices.yaml": "items:\n" + slice("shop", "web-abc", "kubernetes.io/service-name: web"),
		"clusters/east/namespaces.yaml":              "items:\n- metadata: {name: shop}\n",
		"clusters/east/clusterproperties.yaml":       member,
		"clusters/west/namespaces.yaml":              "items:\n- metadata: {name: shop}\n",
		"clusters/west/clusterproperties.yaml":       member,
	}
}

const (
	onBroker = "multicluster.kubernetes.io/service-name: web, seamark.dev/service-namespace: shop, multicluster.kubernetes.io/source-cluster: east"
	record   = "- metadata: {name: web.shop.east, namespace: seamark-broker, labels: {" + onBroker + "}}\n" +
		"  spec: {serviceNamespace: shop, serviceName: web, clusterID: east, type: ClusterSetIP, exportedAt: '2026-01-10T10:00:00Z', " +
		"ports: [{name: http, port: 80, protocol: TCP}], ipFamilies: [IPv4], clusterSetIPs: [243.0.0.1], sessionAffinity: None}\n"
)

func lease(name string) string {
	return "- metadata: {name: " + name + ", namespace: seamark-broker}\n" +
		"  spec: {renewTime: '2026-01-10T11:59:58.000000Z', leaseDurationSeconds: 20}\n"
}

func slice(namespace, name, labels string) string {
	return "- metadata: {name: " + name + ", namespace: " + namespace + ", labels: {" + labels + "}}\n  addressType: IPv4\n" +
		"  endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}}]\n"
}

// An archive is judged as its clusterset was when it was written.
func TestOpen(t *testing.T) {
	file, err := Open(pack(t, "seamark", incident()))
	if err != nil {
		t.Fatal(err)
	}
	now := file.History.Now()
	if now.ClusterSet != "prod" || len(now.Clusters) != 2 || now.Clusters[0].State != "alive" || !now.At.Equal(noon) {
		t.Errorf("%+v", now)
	}
	row := now.Row("shop/web")
	if row == nil || len(row.Groups) != 1 || row.Groups[0].Code != "import-missing" {
		t.Fatalf("%+v", row)
	}
	if east, west := row.Cell(0), row.Cell(1); !east.Exports || west.Verdict != state.Fail {
		t.Errorf("east %+v, west %+v", east, west)
	}
	report := file.Reports["shop/web"]
	if report.Merged == nil || report.Exporters[0].Heartbeat != "alive" || report.Exporters[0].State != "published" {
		t.Errorf("%+v", report)
	}
}

func TestArchivesThatCannotBeShown(t *testing.T) {
	earlier := incident()
	delete(earlier, "clusters/east/exported/services.yaml")
	for name, test := range map[string]struct {
		archive *bytes.Buffer
		want    string
	}{
		"an earlier version": {pack(t, "seamark", earlier), "lacks the Services of exports"},
		"another program":    {pack(t, "other", incident()), "not written by seamark gather"},
		"nothing to show":    {pack(t, "seamark", map[string]string{"versions.yaml": "{}"}), "neither a cluster nor a broker"},
		"no YAML in a file":  {pack(t, "seamark", map[string]string{"broker/clustersets.yaml": "items: 7"}), "broker/clustersets.yaml"},
		"an incomplete file": {bytes.NewBuffer(pack(t, "seamark", incident()).Bytes()[:200]), "damaged"},
		"not compressed":     {bytes.NewBufferString("hello"), "damaged"},
		"an empty file":      {&bytes.Buffer{}, "damaged"},
	} {
		if _, err := Open(test.archive); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIsArchive(t *testing.T) {
	var saved bytes.Buffer
	if err := (&state.File{History: state.NewHistory(&state.Snapshot{})}).Write(&saved, strings.TrimSpace); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content *bytes.Buffer
		want    bool
	}{
		"an archive": {pack(t, "seamark", incident()), true}, "a saved page": {&saved, false}, "text": {bytes.NewBufferString("hello"), false},
	} {
		if got := IsArchive(bufio.NewReaderSize(test.content, 64<<10)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
