package objects

import (
	"testing"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestParseDataPlane(t *testing.T) {
	for text, want := range map[string]v1alpha1.DataPlane{"": "service", "service": "service", "nftables": "nftables", "none": "none"} {
		if got, err := ParseDataPlane(text); err != nil || got.Name != want {
			t.Errorf("%q: %v, %v", text, got.Name, err)
		}
	}
	_, err := ParseDataPlane("ipvs")
	if want := `there is no data plane "ipvs": use service, nftables or none`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
