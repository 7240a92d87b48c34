package agent

import (
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

type serverVersion version.Info

func (v serverVersion) ServerVersion() (*version.Info, error) {
	info := version.Info(v)
	return &info, nil
}

func TestLacksPreferSameNode(t *testing.T) {
	for _, test := range []struct {
		major, minor string
		want         bool
	}{
		{"1", "33", true}, {"1", "33+", true}, {"1", "34", false}, {"1", "34+", false}, {"2", "0", false}, {"1", "unknown", false},
	} {
		got, err := lacksPreferSameNode(serverVersion{Major: test.major, Minor: test.minor})
		if err != nil || got != test.want {
			t.Errorf("version %s.%s: %v, %v, want %v", test.major, test.minor, got, err, test.want)
		}
	}
}
