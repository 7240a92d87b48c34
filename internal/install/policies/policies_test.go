package policies

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/deploy"
)

// Every policy must deny requests that it cannot evaluate, and every denial must have a message.
func TestLoad(t *testing.T) {
	for _, set := range []Set{Broker, Member} {
		objects, err := Load(set)
		if err != nil {
			t.Fatal(err)
		}
		policies := map[string]bool{}
		for _, object := range objects {
			switch o := object.(type) {
			case *admissionregistrationv1.ValidatingAdmissionPolicy:
				policies[o.Name] = true
				if o.Spec.FailurePolicy == nil || *o.Spec.FailurePolicy != admissionregistrationv1.Fail {
					t.Errorf("%s does not fail closed", o.Name)
				}
				for _, v := range o.Spec.Validations {
					if v.MessageExpression == "" && v.Message == "" {
						t.Errorf("%s: %q denies without a message", o.Name, v.Expression)
					}
				}
			case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
				if !policies[o.Spec.PolicyName] {
					t.Errorf("binding %s comes before its policy %s, or has none", o.Name, o.Spec.PolicyName)
				}
				if len(o.Spec.ValidationActions) != 1 || o.Spec.ValidationActions[0] != admissionregistrationv1.Deny {
					t.Errorf("binding %s does not deny", o.Name)
				}
			}
			if object.GetLabels()[labelPartOf] != "seamark" {
				t.Errorf("%s has no label part-of", object.GetName())
			}
		}
	}
	if _, err := Load("unknown"); err == nil || !strings.Contains(err.Error(), "there are broker and member") {
		t.Errorf("an unknown set: %v", err)
	}
}

// A binding whose policy does not exist, or that another broker's policy serves, enforces nothing.
func TestMemberBindingsHaveGrants(t *testing.T) {
	grants, err := Grants("ns")
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for _, object := range grants {
		policies[object.GetName()] = object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	}
	bindings := MemberBindings("ns", "east")
	if len(bindings) != len(policies) {
		t.Errorf("%d bindings for %d policies", len(bindings), len(policies))
	}
	for _, binding := range bindings {
		name := binding.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec.PolicyName
		policy := policies[name]
		if policy == nil {
			t.Errorf("a member's binding names %s, which does not exist", name)
			continue
		}
		want := map[string]string{corev1.LabelMetadataName: "ns"}
		if diff := cmp.Diff(want, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
			t.Errorf("%s does not select the broker's namespace: %s", name, diff)
		}
	}
}

// The chart has the files of members as they are. A second tool that applies them has no conflict
// only if they say what the API server returns.
func TestFilesOfMembersHaveTheDefaults(t *testing.T) {
	files, err := fs.Glob(deploy.Policies, "policies/member/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v (%v)", files, err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(deploy.Policies, file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			written := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			if err := yaml.Unmarshal([]byte(document), written); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			full := written.DeepCopy()
			defaultMatch(full.Spec.MatchConstraints)
			if diff := cmp.Diff(full.Spec.MatchConstraints, written.Spec.MatchConstraints); diff != "" {
				t.Errorf("%s: %s leaves out defaults of matchConstraints: %s", file, written.Name, diff)
			}
		}
	}
}
