package dataplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark-dev/seamark/internal/cli"
	"github.com/seamark-dev/seamark/test/fleet"
)

// kubeconfig writes a kubeconfig with a context for each member, named after it.
func kubeconfig(t *testing.T, members ...*fleet.Member) string {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	for _, m := range members {
		config := m.CP.Config()
		merged.Clusters[m.ID] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
		merged.AuthInfos[m.ID] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
		merged.Contexts[m.ID] = &clientcmdapi.Context{Cluster: m.ID, AuthInfo: m.ID}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// `seamark bench` measures every step from export to import, and leaves nothing behind.
func TestBenchCommand(t *testing.T) {
	east, west, _ := clusterset(t)
	path := kubeconfig(t, east, west)
	run := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		code = cli.Run(context.Background(), append([]string{"--kubeconfig", path, "bench"}, args...), os.Stdin, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, errOut := run("--from", "east", "--to", "west", "--rounds", "3", "-o", "json")
	var result struct {
		Rounds   int
		Measured []struct {
			Name                                           string
			P50Nanoseconds, P99Nanoseconds, MaxNanoseconds int64
		}
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errOut)
	}
	p50 := map[string]int64{}
	for _, m := range result.Measured {
		p50[m.Name] = m.P50Nanoseconds
		if m.P50Nanoseconds <= 0 || m.P50Nanoseconds > m.P99Nanoseconds || m.P99Nanoseconds > m.MaxNanoseconds {
			t.Errorf("%+v", m)
		}
	}
	want := []string{
		"export → usable", "of that: export → ServiceImport and slice", "of that: export → clusterset IP",
		"endpoint change → slice", "unexport → gone",
	}
	for _, name := range want {
		if p50[name] == 0 {
			t.Errorf("%q was not measured: %+v", name, result)
		}
		if strings.HasPrefix(name, "of that") && p50[name] > p50["export → usable"] {
			t.Errorf("%q is later than usable: %+v", name, result)
		}
	}
	if result.Rounds != 3 || len(result.Measured) != len(want) {
		t.Errorf("%+v", result)
	}
	// East derives Services.
	if code, out, errOut := run("--from", "west", "--to", "east", "--rounds", "1"); code != 0 || !strings.Contains(out, "export → usable") {
		t.Errorf("for people: exit %d\n%s%s", code, out, errOut)
	}
	for wrong, says := range map[string]string{"--from east --to east": "two different contexts",
		"--from east --to west --rounds 0": "--rounds must be"} {
		if code, _, errOut := run(strings.Fields(wrong)...); code != 2 || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit %d: %s", wrong, code, errOut)
		}
	}
	for _, m := range []*fleet.Member{east, west} {
		var list corev1.NamespaceList
		if err := m.Client.List(context.Background(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if ns := &list.Items[i]; strings.HasPrefix(ns.Name, "mcs-bench-") && ns.DeletionTimestamp == nil {
				t.Errorf("%s still has namespace %s", m.ID, ns.Name)
			}
		}
	}
}
