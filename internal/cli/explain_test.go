package cli

import (
	"testing"
)

func TestParseServers(t *testing.T) {
	servers, err := parseServers([]string{"10.0.0.1", "west=10.0.0.2:53"})
	if err != nil || servers[""] != "10.0.0.1" || servers["west"] != "10.0.0.2:53" {
		t.Errorf("%v, %v", servers, err)
	}
	if _, err := parseServers([]string{"west="}); err == nil {
		t.Error("an address is missing")
	}
}
