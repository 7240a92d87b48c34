package objects

// Names of what a bridge to Submariner Lighthouse has in the agent's namespace.
const (
	// BridgeName is the name of its Deployment, its account, and the Lease of its replicas.
	BridgeName = "seamark-bridge"
	// BridgeLighthouseSecret has the credential for Lighthouse's broker: the content of Submariner's
	// own Secret, and the address of the API server.
	BridgeLighthouseSecret = "seamark-bridge-lighthouse"
)

// AnnotationBridge is on every object of one cluster that a bridge wrote on Lighthouse's broker. An
// agent of Lighthouse does not set it.
const AnnotationBridge = "seamark.dev/bridge"

// Keys of the Secret BridgeLighthouseSecret. Submariner's own Secret has all but the first.
const (
	LighthouseKeyServer    = "server"
	LighthouseKeyCA        = "ca.crt"
	LighthouseKeyNamespace = "namespace"
	LighthouseKeyToken     = "token"
)

// BridgeInvitation returns the name of the Secret with the invitation of a Lighthouse cluster. The
// user applies it.
func BridgeInvitation(cluster string) string { return "seamark-bridge-invitation-" + cluster }

// BridgeMembership returns the name of the Secret in which the bridge keeps the membership of a
// Lighthouse cluster.
func BridgeMembership(cluster string) string { return "seamark-bridge-member-" + cluster }
