package objects

import (
	"slices"
	"strings"
)

const (
	// DefaultNamespace is the broker's namespace unless the admin chooses another. One namespace is
	// one clusterset.
	DefaultNamespace = "seamark-broker"
	// AgentNamespace is the namespace of Seamark's own objects in a member.
	AgentNamespace = "seamark-system"
)

// IsReserved reports whether services of a namespace are neither exported nor imported unless the
// broker's admin names the namespace for a member.
func IsReserved(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "seamark-")
}

// NamespaceAllowed reports whether a member may exchange services of a namespace. allowed is from
// its Cluster object; when empty, all namespaces but the reserved ones are allowed.
func NamespaceAllowed(allowed []string, namespace string) bool {
	if len(allowed) == 0 {
		return !IsReserved(namespace)
	}
	return slices.Contains(allowed, namespace)
}
