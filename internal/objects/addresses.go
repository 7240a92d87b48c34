package objects

import (
	"net/netip"

	"github.com/seamark-dev/seamark/internal/objects/addresses"
)

// UnusableAddress returns why no endpoint of another cluster can have an address, or "" if one can.
func UnusableAddress(addr netip.Addr) string { return addresses.Unusable(addr) }
