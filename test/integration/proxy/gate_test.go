package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

// Pods can reach the node's address. What the proxy serves there is for those whom the API server
// allows it, and for the node itself.
func TestWhoMayReadTheProxy(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"reader", "stranger"} {
		c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}})
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", programmed.Path}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.namespace, Name: "reader"}},
	}
	c.create(role, binding)
	c.StartReady()
	reader, stranger := c.token("reader"), c.token("stranger")
	at := fmt.Sprintf("https://%s:9441", netbed.NodeIPv4)
	for _, test := range []struct {
		name    string
		headers []string
		want    string // of the error; empty if the request is admitted
	}{
		{"without a token", nil, "401"},
		{"with another scheme", []string{"Authorization", "Basic " + reader}, "401"},
		{"with an invented token", []string{"Authorization", "Bearer invented"}, "403"},
		{"with a token that may not", []string{"Authorization", "Bearer " + stranger}, "403"},
		{"with a token that may", []string{"Authorization", "Bearer " + reader}, ""},
		{"through an API server", []string{programmed.TokenHeader, reader}, ""},
	} {
		for _, path := range []string{"/metrics", programmed.Path, programmed.Path + "?service=ns/svc"} {
			_, err := c.client.Get(at+path, test.headers...)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("%s %s: %v, want %q", path, test.name, err, test.want)
			}
		}
	}
	if _, err := c.node.Get(metricsURL); err != nil {
		t.Errorf("the node itself: %v", err)
	}
	if _, err := c.client.Get(strings.Replace(at, "https", "http", 1) + "/metrics"); err == nil {
		t.Error("a token can be sent in clear")
	}
	// An outage of the API server does not take the metrics away from those who had them.
	c.cp.CutOff()
	if _, err := c.client.Get(at+"/metrics", "Authorization", "Bearer "+reader); err != nil {
		t.Errorf("while the API server is unreachable: %v", err)
	}
	harness.Eventually(t, "an unknown token gets no answer while the API server is unreachable", func() error {
		_, err := c.client.Get(at+"/metrics", "Authorization", "Bearer other")
		if err == nil || !strings.HasPrefix(err.Error(), "503") {
			return fmt.Errorf("answered: %w", err)
		}
		return nil
	})
}

// token returns a token of a ServiceAccount.
func (c *testCluster) token(account string) string {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: account}}
	if err := c.api.SubResource("token").Create(c.t.Context(), object, request, &client.SubResourceCreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return request.Status.Token
}

// What the proxy reports is what packets meet, not what it once wrote.
func TestReportsDamage(t *testing.T) {
	c := newCluster(t)
	c.createSlices(slicesOf("here", c.pods))
	si := service()
	c.create(si)
	c.StartReady()
	report := func() string {
		t.Helper()
		var page string
		harness.Eventually(t, "the proxy reports", func() (err error) {
			page, err = c.node.Get("https://127.0.0.1:9441" + programmed.Path + "?service=" + c.namespace + "/" + si.Name)
			return err
		})
		return page
	}
	whole := report()
	if strings.Count(whole, ":8080") != 18 || strings.Contains(whole, "damage") { // 3 endpoints, 3 protocols, 2 families
		t.Fatalf("before: %s", whole)
	}
	for _, command := range []string{
		"flush chain inet seamark pick4-3", "flush map inet seamark endpoints4", "flush map inet seamark classes6", "delete table inet seamark",
	} {
		c.nft(command)
		if text := report(); !strings.Contains(text, "damage") || strings.Count(text, ":8080") == 18 {
			t.Errorf("after %q: %s", command, text)
		}
		harness.Eventually(t, "the report leads to a repair", func() error {
			if text := report(); text != whole {
				return fmt.Errorf("after %q: %s", command, text)
			}
			_, err := c.client.TCPWithin(frontend(false), time.Second)
			return err
		})
	}
	page, err := c.node.Get("https://127.0.0.1:9441" + programmed.Path)
	if err != nil || !strings.Contains(page, `"ports":6`) || strings.Contains(page, "damage") {
		t.Errorf("the report of the node: %s, %v", page, err)
	}
}
