package objects

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// ReachabilityPath is where the leading seamark-agent serves, on its metrics port, which clusters
// it reaches: a JSON list of Reachability.
const ReachabilityPath = "/reachability"

// ReachState is whether one cluster is reached from another.
type ReachState string

// States of a cluster as seen from another.
const (
	// ReachabilityUnknown: no beacon has answered, so silence proves nothing.
	ReachabilityUnknown ReachState = "unknown"
	// Reachable: its beacons answer, or its endpoints do.
	Reachable ReachState = "reachable"
	// Unreachable: its beacons answered and stopped, and no endpoint that was tried answers.
	Unreachable ReachState = "unreachable"
	// SilentButServing: its lease expired, and it is reached nevertheless.
	SilentButServing ReachState = "silent-but-serving"
)

// ReachReason is why a cluster is in its ReachState.
type ReachReason string

// Reasons of states.
const (
	// ReachNoBeacons: the cluster publishes no beacon in this address family.
	ReachNoBeacons ReachReason = "no-beacons"
	// ReachRefused: all beacons have addresses that the cluster may not publish.
	ReachRefused ReachReason = "addresses-refused"
	// ReachNeverAnswered: no beacon has answered. A firewall may be in the way.
	ReachNeverAnswered ReachReason = "never-answered"
	// ReachBeaconsAnswer: most beacons answer.
	ReachBeaconsAnswer ReachReason = "beacons-answer"
	// ReachEndpointsAnswer: most beacons do not answer, but endpoints accept connections.
	ReachEndpointsAnswer ReachReason = "endpoints-answer"
	// ReachNoAnswer: most beacons stopped answering, and no endpoint accepted a connection.
	ReachNoAnswer ReachReason = "no-answer"
	// ReachNotSteady: the cluster answers again, but not for long enough yet.
	ReachNotSteady ReachReason = "not-steady-yet"
)

// Reachability is how a cluster is reached from another in one address family.
type Reachability struct {
	Cluster string          `json:"cluster"`
	Family  corev1.IPFamily `json:"family"`
	State   ReachState      `json:"state"`
	Reason  ReachReason     `json:"reason"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Latency is the shortest round trip to one of the beacons, in seconds; zero when none answers.
	Latency float64 `json:"latencySeconds,omitempty"`
	// Beacons is how many are probed, Answering how many of them answer.
	Beacons   int `json:"beacons"`
	Answering int `json:"answering"`
}

// WithLease returns the state of a cluster whose lease on the broker expired or not: one that is
// reached serves, whatever became of its agent.
func (s ReachState) WithLease(expired bool) ReachState {
	if s == Reachable && expired {
		return SilentButServing
	}
	return s
}

// ReachStates are the states of clusters in each address family. Those that are missing are
// unknown.
type ReachStates map[reachable.Key]ReachState

// Of returns the state of a cluster in a family.
func (s ReachStates) Of(key reachable.Key) ReachState {
	if state, known := s[key]; known {
		return state
	}
	return ReachabilityUnknown
}

// InAnyFamily reports whether a cluster is reached in one of the address families.
func (s ReachStates) InAnyFamily(cluster string) bool {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if s[reachable.Key{Cluster: cluster, Family: family}] == Reachable {
			return true
		}
	}
	return false
}
