// Package policies applies the ValidatingAdmissionPolicies that confine members on the broker and
// make a member's identity immutable. The policies are YAML files in deploy/policies, with comments
// about their purpose.
package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
)

// Set is the name of the policies that one kind of API server needs.
type Set string

const (
	// Broker confines the members that write to a broker namespace. A member also needs
	// MemberBindings.
	Broker Set = "broker"
	// Member guards the identity of a cluster that joins.
	Member Set = "member"
)

// Load returns the policies and bindings of a set, each policy before its bindings, with the API
// server's defaults filled in. It fails on a set that does not exist and on an invalid embedded
// file, which a test rules out.
func Load(set Set) ([]client.Object, error) {
	files, err := fs.Glob(deploy.Policies, "policies/"+string(set)+"/*.yaml")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no set of policies is called %q: there are %s and %s", set, Broker, Member)
	}
	var objects []client.Object
	for _, file := range files {
		text, err := fs.ReadFile(deploy.Policies, file)
		if err != nil {
			return nil, fmt.Errorf("embedded policy: %w", err)
		}
		documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
		read, err := decode(documents, len(text))
		if err := errors.Join(err, documents.Close()); err != nil {
			return nil, fmt.Errorf("embedded policy %s: %w", file, err)
		}
		objects = append(objects, read...)
	}
	return objects, nil
}

func decode(documents io.Reader, size int) ([]client.Object, error) {
	var objects []client.Object
	buffer := make([]byte, size)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, err := decodeOne(buffer[:n])
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

func decodeOne(text []byte) (client.Object, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	switch kind.Kind {
	case "ValidatingAdmissionPolicy":
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		err := yaml.UnmarshalStrict(text, policy)
		defaultMatch(policy.Spec.MatchConstraints)
		return policy, err
	case "ValidatingAdmissionPolicyBinding":
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		err := yaml.UnmarshalStrict(text, binding)
		defaultMatch(binding.Spec.MatchResources)
		return binding, err
	}
	return nil, fmt.Errorf("a %q is neither a policy nor a binding", kind.Kind)
}

// defaultMatch sets the API server's defaults, so that an unchanged policy is equal to what the API
// server returns.
func defaultMatch(match *admissionregistrationv1.MatchResources) {
	if match == nil {
		return
	}
	if match.MatchPolicy == nil {
		match.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
	for i := range match.ResourceRules {
		if match.ResourceRules[i].Scope == nil {
			match.ResourceRules[i].Scope = new(admissionregistrationv1.AllScopes)
		}
	}
}
