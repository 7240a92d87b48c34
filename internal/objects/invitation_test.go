package objects

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// tokenAt returns a token that was issued at this hour of the broker's clock. The note makes tokens
// of one hour differ.
func tokenAt(hour int64, note string) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"jti":%q}`, hour*3600, (hour+72)*3600, note)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestTakeUp(t *testing.T) {
	with := func(change func(*Membership)) Membership {
		m := membership()
		change(&m)
		return m
	}
	token := func(text string) Membership { return with(func(m *Membership) { m.Token = text }) }
	renewed := token(tokenAt(50, "renewed"))
	for name, test := range map[string]struct {
		invitation Membership
		stored     *Membership
		want       Membership
		problem    string
	}{
		"the first invitation":                 {token(tokenAt(1, "")), nil, token(tokenAt(1, "")), ""},
		"the same one again":                   {token(tokenAt(1, "")), ptr.To(token(tokenAt(1, ""))), token(tokenAt(1, "")), ""},
		"the same one after a renewal":         {token(tokenAt(1, "")), &renewed, renewed, ""},
		"an older one that was never used":     {token(tokenAt(0, "")), ptr.To(token(tokenAt(1, ""))), token(tokenAt(1, "")), ""},
		"a new one":                            {token(tokenAt(51, "")), &renewed, token(tokenAt(51, "")), ""},
		"a new one, issued in the same second": {token(tokenAt(50, "new")), &renewed, token(tokenAt(50, "new")), ""},
		"one whose token has no times":         {token("plain"), &renewed, renewed, ""},
		"a stored token without times":         {token(tokenAt(1, "")), ptr.To(token("edited")), token(tokenAt(1, "")), ""},
		"another address of the broker": {
			with(func(m *Membership) { m.Token, m.Server = tokenAt(1, ""), "https://new:6443" }), &renewed,
			with(func(m *Membership) { m.Token, m.Server = renewed.Token, "https://new:6443" }), "",
		},
		"another CA of the broker": {
			with(func(m *Membership) { m.Token, m.CAData = tokenAt(1, ""), []byte("new") }), &renewed,
			with(func(m *Membership) { m.Token, m.CAData = renewed.Token, []byte("new") }), "",
		},
		"another address, with a public CA": {
			with(func(m *Membership) { m.Token, m.Server, m.CAData = tokenAt(1, ""), "https://new:6443", nil }),
			ptr.To(with(func(m *Membership) { m.Token, m.CAData = renewed.Token, nil })),
			with(func(m *Membership) { m.Token, m.Server, m.CAData = tokenAt(1, ""), "https://new:6443", nil }), "",
		},
		"settings that it does not mention": {
			token(tokenAt(51, "")),
			ptr.To(with(func(m *Membership) { m.DataPlane, m.UseClusterSetIP = v1alpha1.DataPlaneNFTables, ptr.To(false) })),
			with(func(m *Membership) {
				m.Token, m.DataPlane, m.UseClusterSetIP = tokenAt(51, ""), v1alpha1.DataPlaneNFTables, ptr.To(false)
			}), "",
		},
		"another id": {with(func(m *Membership) { m.ClusterID = "west" }), &renewed, renewed, "run seamark leave first"},
		"another clusterset": {with(func(m *Membership) { m.ClusterSet = "test" }), &renewed, renewed,
			"the invitation is for cluster east of clusterset test at https://broker:6443, but this cluster is a member of clusterset prod as east"},
		"another broker": {with(func(m *Membership) { m.Server, m.CAData = "https://other", []byte("other") }), &renewed, renewed,
			"run seamark leave first"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := TakeUp(test.invitation, test.stored)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if test.problem != "" {
				wantError(t, err, test.problem)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokenTimes(t *testing.T) {
	issued, expires := TokenTimes(tokenAt(2, ""))
	if issued != time.Unix(2*3600, 0) || expires != time.Unix(74*3600, 0) {
		t.Errorf("got %s, %s", issued, expires)
	}
	for _, bad := range []string{"", "a.b", "a.!.c", "a.e30.c", "a.bm90IGpzb24.c"} {
		if issued, expires := TokenTimes(bad); !issued.IsZero() || !expires.IsZero() {
			t.Errorf("%q: got %s, %s", bad, issued, expires)
		}
	}
}

// Helm takes objects into a release that carry its marks, and only then.
func TestAllowHelm(t *testing.T) {
	secret := membership().Invitation()
	if !AllowHelm(secret) || AllowHelm(secret) {
		t.Error("the first call must change the Secret, the second must not")
	}
	if secret.Labels[LabelManagedBy] != "Helm" || secret.Labels[LabelPartOf] != PartOfSeamark ||
		secret.Annotations["meta.helm.sh/release-name"] != "seamark" || secret.Annotations["meta.helm.sh/release-namespace"] != "seamark-system" {
		t.Errorf("got %v, %v", secret.Labels, secret.Annotations)
	}
}
