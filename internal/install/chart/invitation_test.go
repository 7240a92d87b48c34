package chart

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/objects"
)

var invited = objects.Membership{
	ClusterID: "east", ClusterSet: "prod", Namespace: "seamark-broker", Server: "https://broker:6443", CAData: []byte("ca"), Token: "secret",
}

// fields returns an invitation as `seamark broker invite` writes it.
func fields(t *testing.T, m objects.Membership) map[string]any {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{"apiVersion": "seamark.dev/v1alpha1", "kind": "Invitation"}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The chart writes the Secret that `seamark join` writes, from the text of the file or from its
// fields. Without an invitation it writes none, and the Secret of the agent has never data.
func TestInvitation(t *testing.T) {
	asFields := fields(t, invited)
	text, err := yaml.Marshal(asFields)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	for key, value := range invited.Invitation().Data {
		want[key] = base64.StdEncoding.EncodeToString(value)
	}
	for name, value := range map[string]any{"text": string(text), "fields": asFields} {
		all := renderedWith(t, map[string]any{"invitation": value})
		if diff := cmp.Diff(any(want), at(t, all["Secret "+objects.InvitationSecret], "data")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if own := all["Secret "+objects.MembershipSecret]; own == nil || at(t, own, "data") != nil {
			t.Errorf("%s: the Secret of the agent is %v", name, own)
		}
	}
	for _, none := range []map[string]any{nil, {"invitation": nil}, {"invitation": ""}} {
		all := renderedWith(t, none)
		if all["Secret "+objects.InvitationSecret] != nil || all["Secret "+objects.MembershipSecret] == nil {
			t.Errorf("%v: Secrets %v, %v", none, all["Secret "+objects.InvitationSecret], all["Secret "+objects.MembershipSecret])
		}
	}
	withoutCA := fields(t, invited)
	delete(withoutCA, "caData")
	if data := at(t, renderedWith(t, map[string]any{"invitation": withoutCA})["Secret "+objects.InvitationSecret], "data"); strings.Contains(
		fmt.Sprint(data), "ca.crt") {
		t.Errorf("an invitation without a CA has %v", data)
	}
}

// What is no invitation is refused with what to do.
func TestBadInvitation(t *testing.T) {
	incomplete := fields(t, invited)
	delete(incomplete, "token")
	unknown := fields(t, invited)
	unknown["tokens"] = "x"
	for says, value := range map[string]any{
		"invitation.token is missing: copy all fields":     incomplete,
		"additional properties 'tokens' not allowed":       unknown,
		"invitation is not a file of seamark broker":       "no: [yaml",
		"invitation is a Secret: apply it with kubectl":    "kind: Secret\napiVersion: v1\n",
		"invitation.clusterID is missing: copy all fields": "kind: Other\n",
	} {
		if _, err := Render(map[string]any{"invitation": value}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", value, err, says)
		}
	}
}

// The choices of the chart win over those of the invitation: the agent gets them as flags.
func TestChoicesOfTheMember(t *testing.T) {
	args := func(all map[string]*unstructured.Unstructured) string {
		return fmt.Sprint(at(t, all["Deployment seamark-agent"], agentContainer+"/args"))
	}
	if got := args(rendered(t)); !strings.Contains(got, "--dataplane=service") || strings.Contains(got, "--enable-clusterset-ip") {
		t.Errorf("by default: %s", got)
	}
	for _, set := range []string{"dataPlane=none", "enableClusterSetIP=false", "enableClusterSetIP=true"} {
		flag := strings.NewReplacer("dataPlane", "--dataplane", "enableClusterSetIP", "--enable-clusterset-ip").Replace(set)
		if got := args(rendered(t, set)); !strings.Contains(got, flag) {
			t.Errorf("%s: %s", set, got)
		}
	}
}

// The agent may read two Secrets of its namespace for its membership, and write one.
func TestAgentMayNotWriteTheInvitation(t *testing.T) {
	rules, _, _ := unstructured.NestedSlice(rendered(t)["Role seamark-agent"].Object, "rules")
	for _, rule := range rules {
		r := rule.(map[string]any)
		if text := fmt.Sprint(r["resourceNames"]); strings.Contains(text, objects.InvitationSecret) && fmt.Sprint(r["verbs"]) != "[get list watch]" {
			t.Errorf("%v", r)
		}
	}
}
