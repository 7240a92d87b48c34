package objects

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Identity returns a member's identity objects: its id under the names of both kinds, and its
// clusterset. The objects of the clusterset come last, because admission makes the id immutable
// once they exist.
func Identity(m Membership) []client.Object {
	ids := []client.Object{
		clusterProperty(aboutv1beta1.PropertyClusterID, m.ClusterID),
		clusterProperty(aboutv1beta1.PropertyClusterIDOld, m.ClusterID),
		clusterClaim(claimsv1.ClaimClusterID, m.ClusterID),
	}
	return append(ids, MembershipClaims(m.ClusterSet)...)
}

// MembershipClaims returns the objects that exist exactly while the cluster is a member of the
// clusterset.
func MembershipClaims(clusterSet string) []client.Object {
	return []client.Object{
		clusterProperty(aboutv1beta1.PropertyClusterSet, clusterSet),
		clusterClaim(claimsv1.ClaimClusterSet, clusterSet),
	}
}

// RangesProperty returns the property that publishes the clusterset's ranges in a member. It is no
// part of the identity: admission does not guard it.
func RangesProperty(ranges []v1alpha1.CIDR) client.Object {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = string(r)
	}
	return clusterProperty(v1alpha1.PropertyClusterSetIPRanges, strings.Join(texts, ","))
}

func clusterProperty(name, value string) *aboutv1beta1.ClusterProperty {
	p := &aboutv1beta1.ClusterProperty{}
	p.Name, p.Spec.Value = name, value
	return p
}

func clusterClaim(name, value string) *claimsv1.ClusterClaim {
	c := &claimsv1.ClusterClaim{}
	c.Name, c.Spec.Value = name, value
	return c
}

// IdentityValue returns the value of an identity object.
func IdentityValue(obj client.Object) string {
	switch typed := obj.(type) {
	case *aboutv1beta1.ClusterProperty:
		return typed.Spec.Value
	case *claimsv1.ClusterClaim:
		return typed.Spec.Value
	}
	return ""
}
