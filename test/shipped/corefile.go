// Package shipped returns the configuration of seamark-dns that the chart installs, for tests and
// benchmarks that run the server outside a pod.
package shipped

import (
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/seamark-dev/seamark/internal/install/chart"
)

// Corefile returns the chart's Corefile with values of the chart.
func Corefile(values map[string]any) (string, error) {
	text, err := chart.Render(values)
	if err != nil {
		return "", err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		config := corev1.ConfigMap{}
		if err := decoder.Decode(&config); errors.Is(err, io.EOF) {
			return "", errors.New("the chart has no Corefile")
		} else if err != nil {
			return "", err
		}
		if config.Kind == "ConfigMap" && config.Name == "seamark-dns" {
			return config.Data["Corefile"], nil
		}
	}
}

// Outside is where a server outside a pod listens and finds its API server.
type Outside struct {
	Kubeconfig string
	// Port is where it answers queries. Metrics, Health and Ready are addresses.
	Port, Metrics, Health, Ready string
}

// Adapt returns the Corefile for a server on the loopback interface.
func Adapt(corefile string, o Outside) (string, error) {
	replaced := strings.NewReplacer(".:1053 {", fmt.Sprintf(".:%s {\n    bind 127.0.0.1", o.Port),
		"health :9442", "health "+o.Health, "ready :9443", "ready "+o.Ready, "prometheus :9441", "prometheus "+o.Metrics,
		" ip6.arpa {\n", " ip6.arpa {\n        kubeconfig "+o.Kubeconfig+"\n").Replace(corefile)
	if strings.Contains(replaced, ":1053") || strings.Contains(replaced, " :94") || !strings.Contains(replaced, o.Kubeconfig) {
		return "", fmt.Errorf("the Corefile of the chart has another form than expected:\n%s", corefile)
	}
	return replaced, nil
}
