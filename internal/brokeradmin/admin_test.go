package brokeradmin

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// At most one of two Clusters with a common block keeps it, and the later one never keeps it while
// the earlier gives it up.
func TestMustGiveUpBlocks(t *testing.T) {
	cluster := func(uid, version string, seconds int64, blocks ...v1alpha1.CIDR) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				UID: types.UID(uid), ResourceVersion: version, Generation: 1, CreationTimestamp: metav1.Unix(seconds, 0),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "seamark"}},
			},
			Spec: v1alpha1.ClusterSpec{ClusterSetIPBlocks: blocks},
		}
	}
	created := cluster("created", "100", 50, "243.1.0.0/16")
	statusWritten := cluster("other", "120", 50, "243.1.0.0/16")
	statusWritten.Status.AgentVersion = "v1"
	specWritten := cluster("other", "120", 50, "243.1.0.0/16")
	specWritten.Generation = 2
	registered := cluster("other", "120", 50, "243.1.0.0/16")
	registered.ManagedFields = nil
	for name, tc := range map[string]struct {
		other *v1alpha1.Cluster
		want  bool
	}{
		"itself":                             {created, false},
		"nothing in common":                  {cluster("other", "90", 50, "243.2.0.0/16"), false},
		"created before":                     {cluster("other", "90", 50, "243.1.0.0/16"), true},
		"created after":                      {cluster("other", "110", 50, "243.1.0.0/16"), false},
		"contained in it, before":            {cluster("other", "90", 50, "243.1.7.0/24"), true},
		"contains it, before":                {cluster("other", "90", 50, "fd00::/112", "243.0.0.0/8"), true},
		"earlier second, changed since":      {cluster("other", "110", 49, "243.1.0.0/16"), true},
		"same second, its agent wrote":       {statusWritten, true},
		"same second, its spec was changed":  {specWritten, true},
		"same second, its managers are gone": {registered, true},
		"versions that cannot be compared":   {cluster("other", "x", 50, "243.1.0.0/16"), true},
		"another family with equal versions": {cluster("other", "90", 50, "fd00::/112"), false},
	} {
		if got := mustGiveUpBlocks(created, tc.other); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestDesiredClusterSet(t *testing.T) {
	existing := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "broker", Name: "prod"}}
	existing.Spec.ClusterSetIP.Ranges = []v1alpha1.CIDR{"243.0.0.0/8"}
	existing.Spec.ClusterSetIP.EnabledByDefault = ptr.To(true)
	ranges := func(texts ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	t.Run("new with defaults", func(t *testing.T) {
		set, err := desiredClusterSet(nil, DeployOptions{Namespace: "broker"})
		checkError(t, err)
		want := v1alpha1.ClusterSetIPSettings{
			EnabledByDefault: ptr.To(true), Ranges: []v1alpha1.CIDR{"243.0.0.0/8", "fd00:243::/48"},
			BlockPrefixLengths: v1alpha1.BlockPrefixLengths{IPv4: 18, IPv6: 112},
		}
		if diff := cmp.Diff(want, set.Spec.ClusterSetIP); diff != "" || set.Name != "clusterset" {
			t.Errorf("%s: %s", set.Name, diff)
		}
	})
	t.Run("small ranges get small blocks", func(t *testing.T) {
		set, err := desiredClusterSet(nil, DeployOptions{Ranges: ranges("10.1.0.0/20", "fd00::/110")})
		checkError(t, err)
		if got := set.Spec.ClusterSetIP.BlockPrefixLengths; got.IPv4 != 24 || got.IPv6 != 114 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("no options change nothing", func(t *testing.T) {
		set, err := desiredClusterSet(existing, DeployOptions{Namespace: "broker"})
		checkError(t, err)
		if diff := cmp.Diff(existing, set); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the mode can be changed and a family added", func(t *testing.T) {
		set, err := desiredClusterSet(existing, DeployOptions{EnableClusterSetIP: ptr.To(false), Ranges: ranges("fd00:243::/48", "243.0.0.0/8")})
		checkError(t, err)
		if ip := set.Spec.ClusterSetIP; *ip.EnabledByDefault || !cmp.Equal(ip.Ranges, []v1alpha1.CIDR{"243.0.0.0/8", "fd00:243::/48"}) {
			t.Errorf("got %+v", ip)
		}
	})
	t.Run("a range cannot be changed", func(t *testing.T) {
		_, err := desiredClusterSet(existing, DeployOptions{Namespace: "broker", Ranges: ranges("242.0.0.0/8")})
		checkError(t, err, "has the ranges 243.0.0.0/8", "cannot be changed", "new broker")
	})
	t.Run("nor the name", func(t *testing.T) {
		_, err := desiredClusterSet(existing, DeployOptions{Namespace: "broker", ClusterSet: "test"})
		checkError(t, err, "clusterset prod", "another --namespace")
	})
}

func TestHeldByOther(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	lease := func(holder *string, renewed time.Duration, written time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(now.Add(-written)))}}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: holder, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-renewed))),
			},
		}
	}
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		"never held":                       {lease(nil, time.Second, time.Second), false},
		"held by this cluster":             {lease(ptr.To("me"), time.Second, time.Second), false},
		"held by another, alive":           {lease(ptr.To("other"), time.Second, time.Second), true},
		"held by another, dead":            {lease(ptr.To("other"), time.Hour, time.Hour), false},
		"alive with a clock an hour back":  {lease(ptr.To("other"), time.Hour, time.Second), true},
		"alive with a clock an hour ahead": {lease(ptr.To("other"), -time.Hour, time.Second), true},
	} {
		if got := heldByOther(tc.lease, "me", now); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestPlanJoin(t *testing.T) {
	invitation := objects.Membership{
		ClusterID: "east", ClusterSet: "prod", Namespace: "broker", Server: "https://a", CAData: []byte("a"), Token: "new",
	}
	member := invitation
	member.Token, member.DataPlane, member.UseClusterSetIP = "old", v1alpha1.DataPlaneNone, ptr.To(false)
	moved := member
	moved.Server, moved.CAData = "https://b", []byte("b")
	renamedServer := member
	renamedServer.Server = "https://b"
	for name, tc := range map[string]struct {
		local   Local
		options JoinOptions
		plane   v1alpha1.DataPlane
		err     []string
	}{
		"first time":                  {Local{}, JoinOptions{}, v1alpha1.DataPlaneService, nil},
		"with a data plane":           {Local{}, JoinOptions{DataPlane: v1alpha1.DataPlaneNFTables}, v1alpha1.DataPlaneNFTables, nil},
		"with no data plane there is": {Local{}, JoinOptions{DataPlane: "ebpf"}, "", []string{"service, nftables or none"}},
		"again keeps the choices": {
			Local{ClusterID: "east", ClusterSet: "prod", Membership: &member}, JoinOptions{}, v1alpha1.DataPlaneNone, nil,
		},
		"the same broker by another address": {
			Local{ClusterID: "east", ClusterSet: "prod", Membership: &renamedServer}, JoinOptions{}, v1alpha1.DataPlaneNone, nil,
		},
		"another clusterset": {
			Local{ClusterID: "east", ClusterSet: "test"}, JoinOptions{}, "",
			[]string{"member of clusterset test", "seamark leave"},
		},
		"another id": {
			Local{ClusterID: "west", ClusterSet: "prod"}, JoinOptions{ClusterID: "east"}, "",
			[]string{"as west, not as east", "seamark leave"},
		},
		"half joined elsewhere": {
			Local{Membership: &objects.Membership{ClusterID: "east", ClusterSet: "test"}}, JoinOptions{}, "",
			[]string{"clusterset test", "seamark leave"},
		},
		"a broker with the same names": {
			Local{ClusterID: "east", ClusterSet: "prod", Membership: &moved}, JoinOptions{}, "",
			[]string{"another broker (https://b)", "seamark leave"},
		},
		"a former id":           {Local{ClusterID: "west"}, JoinOptions{}, "", []string{"--clusterid east"}},
		"a former id, given up": {Local{ClusterID: "west"}, JoinOptions{ClusterID: "east"}, v1alpha1.DataPlaneService, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.local.planMembership(invitation, tc.options)
			checkError(t, err, tc.err...)
			if err == nil && (got.DataPlane != tc.plane || got.Token != "new") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The Secret that users apply can be joined with too.
func TestInvitationSecret(t *testing.T) {
	m := objects.Membership{
		ClusterID: "east", ClusterSet: "prod", Namespace: "broker", Server: "https://a:6443", CAData: []byte("ca"), Token: "secret",
	}
	text, err := EncodeSecret(m)
	checkError(t, err)
	for name, text := range map[string]string{
		"data": string(text),
		"text": "kind: Secret\nstringData: {clusterID: east, clusterSet: prod, namespace: broker, " +
			"server: 'https://a:6443', ca.crt: ca, token: secret}\n",
	} {
		read, err := DecodeInvitation([]byte(text))
		checkError(t, err)
		if diff := cmp.Diff(m, read); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	_, err = EncodeSecret(objects.Membership{ClusterID: "east"})
	checkError(t, err, "clusterSet")
}

func TestInvitationFile(t *testing.T) {
	m := objects.Membership{
		ClusterID: "east", ClusterSet: "prod", Namespace: "broker", Server: "https://a:6443", CAData: []byte("ca"), Token: "secret",
	}
	text, err := EncodeInvitation(m)
	checkError(t, err)
	read, err := DecodeInvitation(text)
	checkError(t, err)
	if diff := cmp.Diff(m, read); diff != "" {
		t.Error(diff)
	}
	_, err = EncodeInvitation(objects.Membership{ClusterID: "east"})
	checkError(t, err, "clusterSet")
	for name, tc := range map[string]struct{ text, err string }{
		"another kind":      {strings.Replace(string(text), "Invitation", "Offer", 1), "seamark broker invite"},
		"another Secret":    {"kind: Secret\napiVersion: v1\nmetadata: {name: x}\n", "the Secret is no invitation"},
		"another version":   {strings.Replace(string(text), "v1alpha1", "v2", 1), "v2"},
		"a field unknown":   {string(text) + "more: 1\n", "older"},
		"a field missing":   {strings.Replace(string(text), "token: secret", "", 1), "token"},
		"no YAML":           {"\x00", "not an invitation"},
		"nothing":           {"", "not an invitation"},
		"an id that is not": {strings.Replace(string(text), "clusterID: east", "clusterID: EAST", 1), "EAST"},
	} {
		_, err := DecodeInvitation([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
	}

	path := filepath.Join(t.TempDir(), "east.invitation.yaml")
	checkError(t, os.WriteFile(path, nil, 0o644))
	checkError(t, WriteInvitation(path, text, false), "exists", "--force")
	checkError(t, WriteInvitation(path, text, true))
	info, err := os.Stat(path)
	checkError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	checkError(t, WriteInvitation(filepath.Join(path, "x"), text, false), "write the invitation")
}
