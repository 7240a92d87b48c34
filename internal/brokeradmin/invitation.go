package brokeradmin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// InvitationKind is the kind of an invitation file.
const InvitationKind = "Invitation"

// invitation is the file that carries a membership to the cluster that is to join.
type invitation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	objects.Membership
}

// EncodeInvitation returns the text of an invitation file. The member's own credential is the only
// secret in it.
func EncodeInvitation(m objects.Membership) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return yaml.Marshal(invitation{APIVersion: v1alpha1.GroupVersion.String(), Kind: InvitationKind, Membership: m})
}

// EncodeSecret returns an invitation as the manifest of a Secret, as users apply it to the cluster
// that is to join.
func EncodeSecret(m objects.Membership) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	secret := m.Invitation()
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	return Manifests(secret)
}

// DecodeInvitation reads an invitation, YAML or JSON: the file, or the Secret. It fails on other
// files, other versions, and unknown or missing fields.
func DecodeInvitation(text []byte) (objects.Membership, error) {
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &header); err != nil {
		return objects.Membership{}, fmt.Errorf("not an invitation: %w", err)
	}
	if header.Kind == "Secret" {
		return decodeSecret(text)
	}
	if want := v1alpha1.GroupVersion.String(); header.Kind != InvitationKind || header.APIVersion != want {
		return objects.Membership{}, fmt.Errorf(
			"not an invitation (kind %q of %q): it must be of kind %s of %s, as seamark broker invite writes it",
			header.Kind, header.APIVersion, InvitationKind, want)
	}
	var in invitation
	if err := yaml.UnmarshalStrict(text, &in); err != nil {
		return objects.Membership{}, fmt.Errorf("the invitation cannot be read (is this seamark older than the one that wrote it?): %w", err)
	}
	if err := in.Validate(); err != nil {
		return objects.Membership{}, fmt.Errorf("the invitation is incomplete: %w", err)
	}
	return in.Membership, CheckClusterID(in.ClusterID)
}

func decodeSecret(text []byte) (objects.Membership, error) {
	secret := &corev1.Secret{}
	if err := yaml.Unmarshal(text, secret); err != nil {
		return objects.Membership{}, fmt.Errorf("the Secret cannot be read: %w", err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return m, fmt.Errorf("the Secret is no invitation (a sealed one must be unsealed first): %w", err)
	}
	return m, CheckClusterID(m.ClusterID)
}

// WriteInvitation writes an invitation file that only its owner can read. An existing file is
// replaced only with force.
func WriteInvitation(path string, text []byte, force bool) error {
	if force {
		// Not overwritten: other users may be able to read the old file.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace %s: %w", path, err)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: say --force to replace it, or --file to write elsewhere", path)
	}
	if err != nil {
		return fmt.Errorf("write the invitation: %w", err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the invitation: %w", err)
	}
	return nil
}
