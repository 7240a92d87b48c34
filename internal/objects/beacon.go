package objects

// Names of the beacons in a member.
const (
	// BeaconService is the name of the headless Service whose pods answer probes of other clusters,
	// and of the Secret with the cluster's id and key, in the agent's namespace.
	BeaconService = "seamark-beacon"
	BeaconSecret  = "seamark-beacon"
	// MaxBeacons is how many addresses of beacons a member publishes in each family.
	MaxBeacons = 8
)

// NodeHash returns what a member publishes of the name of a node.
func NodeHash(name string) string {
	if name == "" {
		return ""
	}
	return shortHash(name)
}
