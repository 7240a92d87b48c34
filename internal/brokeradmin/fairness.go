package brokeradmin

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// annotationGeneration is the generation that a FlowSchema or PriorityLevelConfiguration had when
// Seamark last wrote its spec. A user who edits the spec raises the generation, and Seamark does
// not write the object again. (apf.kubernetes.io/autoupdate-spec must not be used for this: API
// servers delete objects that have it and are not their own.)
const annotationGeneration = "seamark.dev/installed-generation"

// The shares of a broker beside those that every API server has: 245 in all, 100 of them for
// workload-low, which serves ServiceAccounts. docs/broker.md explains the choice.
const (
	memberShares int32 = 50
	leaseShares  int32 = 30
	// memberBorrowing is how much members may borrow from other levels, in percent of their own seats.
	// Seats are not cores: if requests of all levels have to share too few cores, leases get as much
	// of them as they have of the seats that are in use.
	memberBorrowing int32 = 100
)

// Flow schemas with a lower precedence are matched first. An API server's own for ServiceAccounts
// has 9000.
const (
	leasePrecedence  int32 = 7900
	memberPrecedence int32 = 8000
)

// fairness is a FlowSchema and the priority level that it sends requests to.
type fairness struct {
	schema *flowcontrolv1.FlowSchema
	level  *flowcontrolv1.PriorityLevelConfiguration
}

// fairnessOf returns the API priority and fairness objects of a broker. Each member is a flow of
// its own, because each has its own ServiceAccount. Requests of a member that sends too many wait
// in its own queues, and are rejected when these are full.
//
// All requests of members count, not only those for the broker's namespace: a member whose requests
// are forbidden must not use up the seats of the cluster's own workloads.
//
// Renewals and reads of single leases have a level of their own. Otherwise heartbeats would wait
// while a thousand members list everything after a restart, or while one member is slow to read its
// answers, which occupies seats as well.
func fairnessOf(namespace string) []fairness {
	leases := flowcontrolv1.PolicyRulesWithSubjects{ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
		Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Namespaces: []string{namespace},
	}}}
	all := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
		}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
	}
	return []fairness{
		{
			schema: memberSchema("seamark-leases", namespace, leasePrecedence, leases),
			// No other level may borrow these seats: they are free when a heartbeat arrives.
			level: limitedLevel("seamark-leases", namespace, leaseShares, 0, nil,
				flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 4, QueueLengthLimit: 50}),
		},
		{
			schema: memberSchema("seamark-members", namespace, memberPrecedence, all),
			// 10,240 requests can wait, of which 240 of one member: more than an agent sends at a time, and
			// more than the six watches that each of 1,000 members opens after a restart.
			level: limitedLevel("seamark-members", namespace, memberShares, 50, ptr.To(memberBorrowing),
				flowcontrolv1.QueuingConfiguration{Queues: 256, HandSize: 6, QueueLengthLimit: 40}),
		},
	}
}

// fairnessMeta returns the metadata of an object with this prefix. A namespace has no dot in its
// name, so the names of two brokers never collide.
func fairnessMeta(prefix, namespace string) metav1.ObjectMeta {
	labels := managedLabels("")
	labels[policies.LabelBrokerNamespace] = namespace
	return metav1.ObjectMeta{Name: prefix + "." + namespace, Labels: labels, Annotations: map[string]string{annotationGeneration: "1"}}
}

func memberSchema(prefix, namespace string, precedence int32, rule flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	rule.Subjects = []flowcontrolv1.Subject{{
		Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:" + namespace},
	}}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: fairnessMeta(prefix, namespace),
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: prefix + "." + namespace},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{rule},
		},
	}
}

func limitedLevel(
	prefix, namespace string, shares, lendable int32, borrowing *int32, queuing flowcontrolv1.QueuingConfiguration,
) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: fairnessMeta(prefix, namespace),
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(shares), LendablePercent: ptr.To(lendable), BorrowingLimitPercent: borrowing,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &queuing},
			},
		},
	}
}

// installFairness installs the API priority and fairness objects of a broker. It upgrades those
// that no user has edited. If the caller may not write them, or the API server does not have them,
// it returns why they are missing: the broker works without them.
func installFairness(ctx context.Context, c client.Client, namespace string) (steps []Step, missing string, err error) {
	for _, f := range fairnessOf(namespace) {
		schema, level := f.schema.Spec, f.level.Spec
		// The level comes first: a FlowSchema whose level does not exist is ignored.
		for _, install := range []func() (Step, error){
			func() (Step, error) {
				return ensure(ctx, c, f.level.DeepCopy(), func(have *flowcontrolv1.PriorityLevelConfiguration) bool {
					return replaceSpec(have, &have.Spec, level)
				})
			},
			func() (Step, error) {
				return ensure(ctx, c, f.schema.DeepCopy(), func(have *flowcontrolv1.FlowSchema) bool {
					return replaceSpec(have, &have.Spec, schema)
				})
			},
		} {
			var step Step
			err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) { // the API server writes their status
				step, err = install()
				return err
			})
			if reason := notInstallable(err); reason != "" {
				return steps, reason, nil
			}
			if err != nil {
				return steps, "", err
			}
			steps = append(steps, step)
		}
	}
	return steps, "", nil
}

// replaceSpec replaces the spec of an object, unless it is equal or not as Seamark wrote it. It
// reports whether it did.
func replaceSpec[T any](obj metav1.Object, have *T, want T) bool {
	if !isOwnFairness(obj) || obj.GetAnnotations()[annotationGeneration] != strconv.FormatInt(obj.GetGeneration(), 10) ||
		equality.Semantic.DeepEqual(*have, want) {
		return false
	}
	*have = want
	annotations := maps.Clone(obj.GetAnnotations())
	annotations[annotationGeneration] = strconv.FormatInt(obj.GetGeneration()+1, 10)
	obj.SetAnnotations(annotations)
	return true
}

// isOwnFairness reports whether Seamark created the object.
func isOwnFairness(obj metav1.Object) bool {
	return obj.GetLabels()[objects.LabelManagedBy] == objects.ManagedBySeamark
}

// notInstallable returns why the caller cannot write API priority and fairness objects. It returns
// "" for other errors.
func notInstallable(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "you may not read or write FlowSchemas and PriorityLevelConfigurations"
	case meta.IsNoMatchError(err):
		return "the API server does not serve " + flowcontrolv1.SchemeGroupVersion.String()
	}
	return ""
}

// deleteFairness deletes the API priority and fairness objects of a broker. If the caller may not,
// it returns the reason.
func deleteFairness(ctx context.Context, c client.Client, namespace string) (steps []Step, kept string, err error) {
	all := fairnessOf(namespace)
	toDelete := make([]client.Object, 0, 2*len(all))
	for _, f := range all {
		toDelete = append(toDelete, f.schema)
	}
	for _, f := range all { // after the FlowSchemas, which refer to them
		toDelete = append(toDelete, f.level)
	}
	for _, obj := range toDelete {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if absent(err) || (err == nil && !isOwnFairness(obj)) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("read %s: %w", describe(c, obj), err)
		} else {
			var deleted []Step
			deleted, err = deleteAll(ctx, c, []client.Object{obj})
			steps = append(steps, deleted...)
		}
		if reason := notInstallable(err); reason != "" {
			return steps, reason, nil
		}
		if err != nil {
			return steps, "", err
		}
	}
	return steps, "", nil
}

// MissingFairness returns the API priority and fairness objects that a broker lacks, as kind and
// name. It fails if the caller may not read them.
func MissingFairness(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var missing []string
	for _, f := range fairnessOf(namespace) {
		for _, obj := range []client.Object{f.level, f.schema} {
			switch err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); {
			case absent(err):
				missing = append(missing, describe(c, obj))
			case err != nil:
				return nil, err
			}
		}
	}
	return missing, nil
}
