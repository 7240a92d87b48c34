package survey

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// need is something that must be allowed.
type need struct{ verb, group, resource, subresource, namespace, name string }

func (n need) String() string {
	text := n.verb + " " + n.resource
	if n.subresource != "" {
		text += "/" + n.subresource
	}
	if n.name != "" {
		text += " " + n.name
	}
	if n.namespace != "" {
		text += " in " + n.namespace
	}
	return text
}

// userNeeds is what the checks read in a member, as the user who runs them.
var userNeeds = []need{
	{verb: "list", group: mcsv1beta1.GroupName, resource: "serviceexports"},
	{verb: "list", group: mcsv1beta1.GroupName, resource: "serviceimports"},
	{verb: "list", group: "discovery.k8s.io", resource: "endpointslices"},
	{verb: "list", group: "apps", resource: "deployments", namespace: objects.AgentNamespace},
	{verb: "list", resource: "pods", namespace: objects.AgentNamespace},
	{verb: "get", resource: "secrets", namespace: objects.AgentNamespace, name: objects.MembershipSecret},
	{verb: "get", resource: "configmaps", namespace: "kube-system", name: "coredns"},
}

// memberNeeds is what an agent does on the broker.
func memberNeeds(m *objects.Membership) []need {
	seamark, ns := v1alpha1.GroupVersion.Group, m.Namespace
	return []need{
		{verb: "list", group: seamark, resource: "exportrecords", namespace: ns},
		{verb: "create", group: seamark, resource: "exportrecords", namespace: ns},
		{verb: "create", group: "discovery.k8s.io", resource: "endpointslices", namespace: ns},
		{verb: "create", group: mcsv1beta1.GroupName, resource: "serviceimports", namespace: ns},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: ns, name: m.ClusterID},
		{verb: "update", group: seamark, resource: "clusters", subresource: "status", namespace: ns, name: m.ClusterID},
		{verb: "create", resource: "serviceaccounts", subresource: "token", namespace: ns, name: objects.MemberAccount(m.ClusterID)},
	}
}

// denied asks an API server which of the needs its client is not allowed. A question that fails counts as denied: the user learns why.
func (s *Cluster) denied(ctx context.Context, c client.Client, needs []need) []string {
	var out []string
	for _, n := range needs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: n.verb, Group: n.group, Resource: n.resource, Subresource: n.subresource, Namespace: n.namespace, Name: n.name,
			},
		}}
		switch err := c.Create(ctx, review); {
		case err != nil:
			return append(out, fmt.Sprintf("ask what is allowed (%s)", objects.ErrorText(err)))
		case !review.Status.Allowed:
			out = append(out, n.String())
		}
	}
	return out
}
