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

// permission is a request that RBAC must allow.
type permission struct{ verb, group, resource, subresource, namespace, name string }

func (p permission) String() string {
	text := p.verb + " " + p.resource
	if p.subresource != "" {
		text += "/" + p.subresource
	}
	if p.name != "" {
		text += " " + p.name
	}
	if p.namespace != "" {
		text += " in " + p.namespace
	}
	return text
}

// userPermissions are what the user of doctor needs in a member.
var userPermissions = []permission{
	{verb: "list", group: mcsv1beta1.GroupName, resource: "serviceexports"},
	{verb: "list", group: mcsv1beta1.GroupName, resource: "serviceimports"},
	{verb: "list", group: "discovery.k8s.io", resource: "endpointslices"},
	{verb: "list", group: "apps", resource: "deployments", namespace: objects.AgentNamespace},
	{verb: "list", resource: "pods", namespace: objects.AgentNamespace},
	{verb: "get", resource: "secrets", namespace: objects.AgentNamespace, name: objects.MembershipSecret},
	{verb: "get", resource: "configmaps", namespace: "kube-system", name: "coredns"},
}

// memberPermissions are what the agent of a member needs on the broker.
func memberPermissions(m *objects.Membership) []permission {
	seamark, ns := v1alpha1.GroupVersion.Group, m.Namespace
	return []permission{
		{verb: "list", group: seamark, resource: "exportrecords", namespace: ns},
		{verb: "create", group: seamark, resource: "exportrecords", namespace: ns},
		{verb: "create", group: "discovery.k8s.io", resource: "endpointslices", namespace: ns},
		{verb: "create", group: mcsv1beta1.GroupName, resource: "serviceimports", namespace: ns},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: ns, name: m.ClusterID},
		{verb: "update", group: seamark, resource: "clusters", subresource: "status", namespace: ns, name: m.ClusterID},
		{verb: "create", resource: "serviceaccounts", subresource: "token", namespace: ns, name: objects.MemberAccount(m.ClusterID)},
	}
}

// deniedOf returns which of the permissions the user of a client lacks. If the API server does not
// answer that, the reason is returned as a denied permission, so that the user sees it.
func deniedOf(ctx context.Context, c client.Client, permissions []permission) []string {
	var out []string
	for _, p := range permissions {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
			},
		}}
		switch err := c.Create(ctx, review); {
		case err != nil:
			return append(out, fmt.Sprintf("ask what is allowed (%s)", objects.ErrorText(err)))
		case !review.Status.Allowed:
			out = append(out, p.String())
		}
	}
	return out
}
