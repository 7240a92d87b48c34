package objects

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// DataPlane is what varies between the ways in which a cluster reaches imported services. Code asks
// for these properties instead of comparing names, so that another data plane is one more row
// below.
type DataPlane struct {
	Name v1alpha1.DataPlane
	// Summary says in half a sentence what it does, for help texts.
	Summary string
	// DerivesService reports whether each import gets a selectorless Service. Its ClusterIPs are
	// then the addresses of the import, and imported slices carry its name; otherwise the import
	// has the clusterset IPs themselves.
	DerivesService bool
	// RunsProxy reports whether seamark-proxy must run on every node.
	RunsProxy bool
}

// DataPlanes are all data planes, the default first.
var DataPlanes = []DataPlane{
	{Name: v1alpha1.DataPlaneService, Summary: "a derived Service for each import", DerivesService: true},
	{Name: v1alpha1.DataPlaneNFTables, Summary: "seamark-proxy on every node", RunsProxy: true},
	{Name: v1alpha1.DataPlaneNone, Summary: "the clusterset IP is published, something else routes it"},
}

// DataPlaneOf returns the data plane of that name. The empty name, and one that this version does
// not have, stand for the default: use ParseDataPlane for what users write.
func DataPlaneOf(name v1alpha1.DataPlane) DataPlane {
	if i := slices.IndexFunc(DataPlanes, func(p DataPlane) bool { return p.Name == name }); i >= 0 {
		return DataPlanes[i]
	}
	return DataPlanes[0]
}

// ParseDataPlane returns the data plane that a user named; the empty text is the default.
func ParseDataPlane(text string) (DataPlane, error) {
	name := v1alpha1.DataPlane(cmp.Or(text, string(DataPlanes[0].Name)))
	if p := DataPlaneOf(name); p.Name == name {
		return p, nil
	}
	return DataPlane{}, fmt.Errorf("there is no data plane %q: use %s", text, DataPlaneNames())
}

// DataPlaneNames lists the names for help texts and errors: "service, nftables or none".
func DataPlaneNames() string {
	names := make([]string, len(DataPlanes))
	for i, p := range DataPlanes {
		names[i] = string(p.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
