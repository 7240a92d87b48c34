package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/adopt"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Action is what was done with a policy or binding.
type Action string

const (
	// Created means that it did not exist.
	Created Action = "created"
	// Updated means that it existed and was different.
	Updated Action = "updated"
	// Unchanged means that it was equal; nothing was written.
	Unchanged Action = "unchanged"
)

// Outcome is what was done with one object, for users and for -o json.
type Outcome struct {
	// Kind is ValidatingAdmissionPolicy or ValidatingAdmissionPolicyBinding.
	Kind string `json:"kind"`
	// Name of the object.
	Name string `json:"name"`
	// Action that was taken.
	Action Action `json:"action"`
}

// attempts is how often a write is retried when other clients change the same object.
const attempts = 10

// Install applies all policies of a set. Their parameter kinds must be installed before: a policy
// whose parameter kind is missing denies every request it matches. Policies take effect a second or
// two after Install returns.
//
// If the API server serves ClusterProperty only as v1alpha1, from a CRD of another tool, the
// policies take their parameter in that version.
//
// The policies of members are part of the chart too, so they are written in the name of helm.
func Install(ctx context.Context, c client.Client, set Set) ([]Outcome, error) {
	all, err := Load(set)
	if err != nil {
		return nil, err
	}
	for _, object := range all {
		policy, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok || policy.Spec.ParamKind == nil {
			continue
		}
		if err := useServedVersion(c.RESTMapper(), policy.Spec.ParamKind); err != nil {
			return nil, fmt.Errorf("ValidatingAdmissionPolicy %s: %w", policy.Name, err)
		}
	}
	if set == Member {
		return writeAll(ctx, c, applyAsHelm, all)
	}
	return Apply(ctx, c, all...)
}

// useServedVersion changes the version of a parameter kind to the one that the API server prefers,
// unless it serves the given version.
func useServedVersion(mapper meta.RESTMapper, kind *admissionregistrationv1.ParamKind) error {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return err
	}
	want := version.WithKind(kind.Kind)
	_, err = mapper.RESTMapping(want.GroupKind(), want.Version)
	if !meta.IsNoMatchError(err) {
		return err
	}
	mapping, err := mapper.RESTMapping(want.GroupKind())
	if err != nil {
		return fmt.Errorf("its parameter kind is not served; install the CustomResourceDefinitions first: %w", err)
	}
	kind.APIVersion = mapping.GroupVersionKind.GroupVersion().String()
	return nil
}

// Apply creates or updates policies and bindings. It removes additions of other clients from their
// specs, because they could only weaken or break a policy. Labels and annotations of others stay.
// Equal objects are not written. The outcomes are those of the objects before the one that failed.
func Apply(ctx context.Context, c client.Client, all ...client.Object) ([]Outcome, error) {
	return writeAll(ctx, c, apply, all)
}

type applyFunc func(ctx context.Context, c client.Client, desired client.Object) (Action, error)

func writeAll(ctx context.Context, c client.Client, apply applyFunc, all []client.Object) ([]Outcome, error) {
	outcomes := make([]Outcome, 0, len(all))
	for _, object := range all {
		kind, err := kindOf(object)
		if err != nil {
			return outcomes, err
		}
		action, err := apply(ctx, c, object)
		if err != nil {
			return outcomes, fmt.Errorf("apply %s %s: %w", kind, object.GetName(), err)
		}
		outcomes = append(outcomes, Outcome{kind, object.GetName(), action})
	}
	return outcomes, nil
}

func kindOf(object client.Object) (string, error) {
	switch object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return "ValidatingAdmissionPolicy", nil
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return "ValidatingAdmissionPolicyBinding", nil
	}
	return "", fmt.Errorf("%s is a %T: want a policy or a binding", object.GetName(), object)
}

// applyAsHelm writes an object of the release as helm does, if it differs or is not marked for
// helm. apply then removes what other clients added, which server-side apply leaves.
func applyAsHelm(ctx context.Context, c client.Client, desired client.Object) (Action, error) {
	existing := desired.DeepCopyObject().(client.Object)
	err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	action := Updated
	switch {
	case apierrors.IsNotFound(err):
		action = Created
	case err != nil:
		return "", err
	case !update(existing, desired) && !objects.AllowHelm(existing):
		return Unchanged, nil
	}
	if err := adopt.Apply(ctx, c, desired); err != nil {
		return "", err
	}
	_, err = apply(ctx, c, desired)
	return action, err
}

func apply(ctx context.Context, c client.Client, desired client.Object) (Action, error) {
	for range attempts {
		existing := desired.DeepCopyObject().(client.Object)
		err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing)
		if apierrors.IsNotFound(err) {
			err = c.Create(ctx, desired.DeepCopyObject().(client.Object))
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return Created, err
		}
		if err != nil {
			return "", err
		}
		if !update(existing, desired) {
			return Unchanged, nil
		}
		err = c.Update(ctx, existing)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue
		}
		return Updated, err
	}
	return "", errors.New("other clients kept changing it: find out which, then try again")
}

// update changes existing to what is desired and reports whether it changed.
func update(existing, desired client.Object) bool {
	changed := false
	labels := maps.Clone(existing.GetLabels())
	for key, value := range desired.GetLabels() {
		if labels[key] != value {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key], changed = value, true
		}
	}
	existing.SetLabels(labels)
	switch want := desired.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		have := existing.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
			have.Spec, changed = *want.Spec.DeepCopy(), true
		}
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		have := existing.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
			have.Spec, changed = *want.Spec.DeepCopy(), true
		}
	}
	return changed
}
