package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func membership() Membership {
	return Membership{
		ClusterID: "east", ClusterSet: "prod", Namespace: "seamark-broker", Server: "https://broker:6443", CAData: []byte("ca"), Token: "secret",
	}
}

func TestMembershipSecret(t *testing.T) {
	plain := membership()
	chosen := membership()
	chosen.DataPlane, chosen.UseClusterSetIP = v1alpha1.DataPlaneNFTables, ptr.To(false)
	for name, m := range map[string]Membership{"without choices": plain, "with choices": chosen} {
		secret := m.Secret()
		if secret.Namespace != "seamark-system" || secret.Name != "seamark-broker" || secret.Labels[LabelPartOf] != PartOfSeamark {
			t.Errorf("%s: Secret %+v", name, secret.ObjectMeta)
		}
		read, err := MembershipFrom(secret)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(m, read); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMembershipFromBadSecret(t *testing.T) {
	_, err := MembershipFrom(nil)
	wantError(t, err, "run seamark join")
	for key, want := range map[string]string{
		keyClusterID: "no clusterID", keyClusterSet: "no clusterSet", keyNamespace: "no namespace", keyServer: "no server", keyToken: "no token",
	} {
		secret := membership().Secret()
		delete(secret.Data, key)
		_, err := MembershipFrom(secret)
		wantError(t, err, "secret seamark-system/seamark-broker: the membership has "+want)
	}
	secret := membership().Secret()
	secret.Data[keyUseClusterSetIP] = []byte("maybe")
	_, err = MembershipFrom(secret)
	wantError(t, err, `useClusterSetIP must be true or false, not "maybe"`)
	_, err = MembershipFrom(&corev1.Secret{})
	wantError(t, err, "the membership has no clusterID")
	empty := membership().Secret() // as the chart creates it
	empty.Data = nil
	_, err = MembershipFrom(empty)
	wantError(t, err, "seamark broker invite ID -o yaml")
}

func TestMembershipConfig(t *testing.T) {
	config := membership().Config()
	if config.Host != "https://broker:6443" || config.BearerToken != "secret" || string(config.CAData) != "ca" {
		t.Errorf("got %+v", config)
	}
	if config.QPS >= 0 || config.UserAgent != "seamark-agent/east" {
		t.Errorf("QPS %v, user agent %s", config.QPS, config.UserAgent)
	}
}

func TestIdentity(t *testing.T) {
	var got []string
	for _, obj := range Identity(membership()) {
		got = append(got, obj.GetName()+"="+IdentityValue(obj))
	}
	want := []string{
		"cluster.clusterset.k8s.io=east", "id.k8s.io=east", "id.k8s.io=east", "clusterset.k8s.io=prod", "clusterset.k8s.io=prod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
