package brokeradmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Defaults of a clusterset.
const (
	// DefaultClusterSet is the name of a clusterset whose admin chose none.
	DefaultClusterSet = "clusterset"

	defaultRangeIPv4       = "243.0.0.0/8" // class E: not routed, so it collides with no network
	defaultRangeIPv6       = "fd00:243::/48"
	defaultBlockIPv4 int32 = 18 // 1,024 members
	defaultBlockIPv6 int32 = 112
)

// DeployOptions are the settings of a broker. An empty option keeps the setting of an existing
// broker and means the default for a new one.
type DeployOptions struct {
	// Namespace of the broker; DefaultNamespace when empty.
	Namespace string
	// ClusterSet is the name of the clusterset.
	ClusterSet string
	// EnableClusterSetIP is the default of exports that do not choose. It is true on a new broker.
	EnableClusterSetIP *bool
	// Ranges are the ranges of clusterset IPs.
	Ranges []netip.Prefix
}

// DeployResult is what Deploy found or created.
type DeployResult struct {
	Namespace          string          `json:"namespace"`
	ClusterSet         string          `json:"clusterSet"`
	EnableClusterSetIP bool            `json:"enableClusterSetIP"`
	Ranges             []v1alpha1.CIDR `json:"clusterSetIPRanges"`
	// FairnessMissing is why the API priority and fairness objects were not installed.
	FairnessMissing string `json:"fairnessMissing,omitempty"`
	Steps           []Step `json:"steps"`
}

// Deploy makes a namespace of an API server a broker: it installs CRDs, policies, the role of
// members, the ClusterSet and, if the caller may, the API priority and fairness objects. On an
// existing broker it writes only what differs. It refuses to rename a clusterset and to change its
// ranges, because their clusterset IPs are in use. Ranges can be added.
func Deploy(ctx context.Context, c client.Client, o DeployOptions) (DeployResult, error) {
	o.Namespace = cmp.Or(o.Namespace, objects.DefaultNamespace)
	result := DeployResult{Namespace: o.Namespace}
	if err := o.check(); err != nil {
		return result, err
	}
	// Decide before anything is written: a refusal leaves the API server as it was.
	existing, err := findClusterSet(ctx, c, o.Namespace)
	if err != nil && !errors.Is(err, errNoClusterSet) {
		return result, err
	}
	want, err := desiredClusterSet(existing, o)
	if err != nil {
		return result, err
	}
	if err := result.deploy(ctx, c, want); err != nil {
		return result, fmt.Errorf("deploy the broker in namespace %s: %w", o.Namespace, err)
	}
	result.ClusterSet = want.Name
	result.EnableClusterSetIP = ptr.Deref(want.Spec.ClusterSetIP.EnabledByDefault, true)
	result.Ranges = want.Spec.ClusterSetIP.Ranges
	return result, nil
}

// check refuses options that no API server would accept.
func (o DeployOptions) check() error {
	if o.ClusterSet != "" {
		if err := CheckClusterSetName(o.ClusterSet); err != nil {
			return err
		}
	}
	if err := CheckNamespaces([]string{o.Namespace}); err != nil {
		return err
	}
	_, err := ParseRanges(cidrs(o.Ranges))
	return err
}

func (r *DeployResult) deploy(ctx context.Context, c client.Client, want *v1alpha1.ClusterSet) error {
	namespace := brokerNamespace(want.Namespace)
	step, err := ensure(ctx, c, namespace, nil)
	if err != nil {
		return err
	}
	if namespace.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %s is being deleted: wait until it is gone", namespace.Name)
	}
	r.Steps = append(r.Steps, step)
	kinds, err := installKinds(ctx, c, crds.Broker)
	r.Steps = append(r.Steps, kinds...)
	if err != nil {
		return err
	}
	rules, err := installPolicies(ctx, c, crds.Broker, policies.Broker)
	r.Steps = append(r.Steps, rules...)
	if err != nil {
		return err
	}
	grants, err := installGrants(ctx, c, want.Namespace)
	r.Steps = append(r.Steps, grants...)
	if err != nil {
		return err
	}
	role := sharedRole(want.Namespace)
	allowed := role.Rules
	step, err = ensure(ctx, c, role, func(have *rbacv1.Role) bool {
		if equality.Semantic.DeepEqual(have.Rules, allowed) {
			return false
		}
		have.Rules = allowed
		return true
	})
	if err != nil {
		return err
	}
	r.Steps = append(r.Steps, step)
	upgraded, err := upgradeMembers(ctx, c, want.Namespace)
	r.Steps = append(r.Steps, upgraded...)
	if err != nil {
		return err
	}
	shares, missing, err := installFairness(ctx, c, want.Namespace)
	r.Steps, r.FairnessMissing = append(r.Steps, shares...), missing
	if err != nil {
		return err
	}
	spec := want.Spec
	step, err = ensure(ctx, c, want, func(have *v1alpha1.ClusterSet) bool {
		_, named := have.Annotations[v1alpha1.AnnotationNamedSlices]
		if named && equality.Semantic.DeepEqual(have.Spec, spec) {
			return false
		}
		metav1.SetMetaDataAnnotation(&have.ObjectMeta, v1alpha1.AnnotationNamedSlices, "")
		have.Spec = spec
		return true
	})
	r.Steps = append(r.Steps, step)
	return err
}

// desiredClusterSet returns the existing ClusterSet with the options applied, or a new one. It
// fails if an option asks for a change that is not allowed.
func desiredClusterSet(existing *v1alpha1.ClusterSet, o DeployOptions) (*v1alpha1.ClusterSet, error) {
	if existing == nil {
		ranges := cidrs(o.Ranges)
		if len(ranges) == 0 {
			ranges = []v1alpha1.CIDR{defaultRangeIPv4, defaultRangeIPv6}
		}
		set := &v1alpha1.ClusterSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: cmp.Or(o.ClusterSet, DefaultClusterSet), Labels: managedLabels(""),
				Annotations: map[string]string{v1alpha1.AnnotationNamedSlices: ""}},
			Spec: v1alpha1.ClusterSetSpec{
				ClusterSetIP: v1alpha1.ClusterSetIPSettings{
					EnabledByDefault: ptr.To(ptr.Deref(o.EnableClusterSetIP, true)),
					Ranges:           ranges,
				},
				StaleEndpoints: v1alpha1.StaleEndpointsFailover,
			},
		}
		set.Spec.ClusterSetIP.BlockPrefixLengths = blockLengths(ranges)
		return set, nil
	}
	if o.ClusterSet != "" && o.ClusterSet != existing.Name {
		return nil, fmt.Errorf("namespace %s is the broker of clusterset %s, and a namespace is one clusterset: "+
			"choose another --namespace for clusterset %s", o.Namespace, existing.Name, o.ClusterSet)
	}
	set := existing.DeepCopy()
	if o.EnableClusterSetIP != nil {
		set.Spec.ClusterSetIP.EnabledByDefault = o.EnableClusterSetIP
	}
	if len(o.Ranges) == 0 {
		return set, nil
	}
	asked := cidrs(o.Ranges)
	for _, r := range existing.Spec.ClusterSetIP.Ranges {
		if !slices.Contains(asked, r) {
			return nil, fmt.Errorf("clusterset %s has the ranges %s, and addresses of them are in use: a range cannot be changed or "+
				"removed. Leave --clusterset-ip-cidr-range out, or deploy a new broker in another --namespace", existing.Name,
				joinCIDRs(existing.Spec.ClusterSetIP.Ranges))
		}
	}
	if len(asked) > len(existing.Spec.ClusterSetIP.Ranges) {
		// Keep the existing order: the first family is the primary one.
		for _, r := range asked {
			if !slices.Contains(set.Spec.ClusterSetIP.Ranges, r) {
				set.Spec.ClusterSetIP.Ranges = append(set.Spec.ClusterSetIP.Ranges, r)
			}
		}
	}
	return set, nil
}

// blockLengths returns the default sizes of blocks. They are smaller where the range would not hold
// at least 16 of them.
func blockLengths(ranges []v1alpha1.CIDR) v1alpha1.BlockPrefixLengths {
	lengths := v1alpha1.BlockPrefixLengths{IPv4: defaultBlockIPv4, IPv6: defaultBlockIPv6}
	const sixteen, smallestIPv4, smallestIPv6 = 4, 30, 126
	for _, text := range ranges {
		r, err := netip.ParsePrefix(string(text))
		switch {
		case err != nil: // the caller has checked the ranges
		case r.Addr().Is4():
			lengths.IPv4 = min(max(lengths.IPv4, int32(r.Bits()+sixteen)), smallestIPv4)
		default:
			lengths.IPv6 = min(max(lengths.IPv6, int32(r.Bits()+sixteen)), smallestIPv6)
		}
	}
	return lengths
}

var errNoClusterSet = errors.New("there is no broker here")

// findClusterSet returns the ClusterSet of a broker namespace, or errNoClusterSet.
func findClusterSet(ctx context.Context, c client.Client, namespace string) (*v1alpha1.ClusterSet, error) {
	var sets v1alpha1.ClusterSetList
	if err := c.List(ctx, &sets, client.InNamespace(namespace)); err != nil && !absent(err) {
		return nil, fmt.Errorf("look for the clusterset in namespace %s: %w", namespace, err)
	}
	switch len(sets.Items) {
	case 0:
		return nil, fmt.Errorf("%w: namespace %s holds no clusterset; run seamark broker deploy first, or name the right --context "+
			"and namespace", errNoClusterSet, namespace)
	case 1:
		return &sets.Items[0], nil
	}
	return nil, fmt.Errorf("namespace %s holds %d ClusterSets, but a namespace is one clusterset: delete all but the right one",
		namespace, len(sets.Items))
}

func joinCIDRs(cs []v1alpha1.CIDR) string {
	ps, err := ParseRanges(cs)
	if err != nil {
		return fmt.Sprint(cs)
	}
	return join(ps)
}
