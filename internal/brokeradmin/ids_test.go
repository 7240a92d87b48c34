package brokeradmin

import (
	"strings"
	"testing"
)

func TestCheckClusterID(t *testing.T) {
	for _, id := range []string{"east", "e", "0", "a-b", "east.region-1", "6c1f0a6e-2d3b-4d8e-9f10-0a1b2c3d4e5f", strings.Repeat("a", 63)} {
		if err := CheckClusterID(id); err != nil {
			t.Errorf("%q is refused: %v", id, err)
		}
	}
	for _, id := range []string{
		"", "East", "-east", "east-", "a_b", "a..b", "a.b.c", ".a", "a.", "ost√", "a b", "a/b", "a:b", "*", strings.Repeat("a", 64),
	} {
		err := CheckClusterID(id)
		if err == nil {
			t.Errorf("%q is accepted", id)
		} else if !strings.Contains(err.Error(), "lower-case letters, digits and '-'") {
			t.Errorf("the refusal of %q does not say what is allowed: %v", id, err)
		}
	}
}

func TestChooseID(t *testing.T) {
	const uid = "6c1f0a6e-2d3b-4d8e-9f10-0a1b2c3d4e5f"
	for name, tc := range map[string]struct {
		explicit, existing, invited string
		want                        string
		err                         []string
	}{
		"no choice: the uid":                 {"", "", "", uid, nil},
		"what the cluster has":               {"", "east", "", "east", nil},
		"the user's choice wins":             {"west", "east", "", "west", nil},
		"the invitation's":                   {"", "", "east", "east", nil},
		"all agree":                          {"east", "east", "east", "east", nil},
		"the user may change a former id":    {"west", "east", "west", "west", nil},
		"the user and the invitation differ": {"west", "", "east", "", []string{"for cluster east, not west", "seamark broker invite west"}},
		"the former id and the invitation":   {"", "east", "west", "", []string{"the id of this cluster is east", "--clusterid west"}},
		"the user's choice is invalid":       {"West!", "", "", "", []string{"cannot be a cluster id"}},
		"the cluster's id is invalid":        {"", "a.b.c", "", "", []string{"cannot be a cluster id"}},
		"the invitation's id is invalid":     {"", "", "A", "", []string{"cannot be a cluster id"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ChooseID(tc.explicit, tc.existing, tc.invited, uid)
			checkError(t, err, tc.err...)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCheckNames(t *testing.T) {
	checkError(t, CheckNamespaces([]string{"shop", "kube-system"}))
	checkError(t, CheckNamespaces([]string{"shop", "shop-*"}), "shop-*", "one by one")
	checkError(t, CheckClusterSetName("prod"))
	checkError(t, CheckClusterSetName("prod.example"), "prod.example", "clusterset")
}
