package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/seamark-dev/seamark/test/controlplane"
)

// Sample is the value of one series of a metric.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// ParseMetric reads all series of one metric from the text format of Prometheus. It expects that no
// label value holds a comma or a quote, as is the case for the request metrics of API servers.
func ParseMetric(r io.Reader, name string) ([]Sample, error) {
	var out []Sample
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, found := strings.CutPrefix(lines.Text(), name+"{")
		if !found {
			continue
		}
		labels, text, _ := strings.Cut(series, "} ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("parse metric %q: %w", lines.Text(), err)
		}
		out = append(out, Sample{Labels: parseLabels(labels), Value: value})
	}
	return out, lines.Err()
}

func parseLabels(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		out[name] = strings.Trim(value, `"`)
	}
	return out
}

// Metric returns all series of a metric of the control plane's API server.
func Metric(t testing.TB, cp *controlplane.ControlPlane, name string) []Sample {
	t.Helper()
	text, err := ReadMetrics(t.Context(), cp)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := ParseMetric(bytes.NewReader(text), name)
	if err != nil {
		t.Fatalf("read the metrics of %s: %v", cp.Name(), err)
	}
	return samples
}

// ReadMetrics returns all metrics of the control plane's API server.
func ReadMetrics(ctx context.Context, cp *controlplane.ControlPlane) ([]byte, error) {
	config := cp.DirectConfig()
	config.DisableCompression = true // it takes almost half of the API server's time for this request
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cp.Name(), err)
	}
	text, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", cp.Name(), err)
	}
	return text, nil
}
