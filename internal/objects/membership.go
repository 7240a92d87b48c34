package objects

import (
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Secrets in the agent's namespace. Users, the chart and `seamark join` write the invitation, and
// the agent only reads it. The agent writes the membership: what it has taken up of the invitation,
// with the token as it renewed it last.
const (
	InvitationSecret = "seamark-invitation"
	MembershipSecret = "seamark-broker"
)

// Keys of both Secrets.
const (
	keyClusterID       = "clusterID"
	keyClusterSet      = "clusterSet"
	keyNamespace       = "namespace"
	keyServer          = "server"
	keyCA              = "ca.crt"
	keyToken           = "token"
	keyUseClusterSetIP = "useClusterSetIP"
	keyDataPlane       = "dataPlane"
)

// Membership makes a cluster a member: its id, its broker, and its credential there, which grants
// only what that member needs.
type Membership struct {
	ClusterID  string `json:"clusterID"`
	ClusterSet string `json:"clusterSet"`
	// Namespace is the broker's namespace.
	Namespace string `json:"namespace"`
	// Server is the URL of the broker's API server.
	Server string `json:"server"`
	CAData []byte `json:"caData,omitempty"`
	Token  string `json:"token"`
	// UseClusterSetIP is the default of this member's exports. When nil, the clusterset's default
	// applies.
	UseClusterSetIP *bool `json:"useClusterSetIP,omitempty"`
	// DataPlane is how imported services are reached in this cluster.
	DataPlane v1alpha1.DataPlane `json:"dataPlane,omitempty"`
}

// Validate returns an error that names the first required field that is empty.
func (m Membership) Validate() error {
	for _, field := range []struct{ name, value string }{
		{keyClusterID, m.ClusterID}, {keyClusterSet, m.ClusterSet}, {keyNamespace, m.Namespace},
		{keyServer, m.Server}, {keyToken, m.Token},
	} {
		if field.value == "" {
			return fmt.Errorf("the membership has no %s: join the cluster again with a new invitation (seamark broker invite)", field.name)
		}
	}
	return nil
}

// Config returns a client configuration for the broker with the member's own token.
func (m Membership) Config() *rest.Config {
	return &rest.Config{
		Host:            m.Server,
		BearerToken:     m.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: m.CAData},
		QPS:             -1, // the API server's priority and fairness limits clients; a limit here would only add delay
		UserAgent:       "seamark-agent/" + m.ClusterID,
	}
}

// Secret returns the Secret that stores the membership in the member.
func (m Membership) Secret() *corev1.Secret { return m.secret(MembershipSecret) }

// Invitation returns the Secret that a user applies to make the cluster a member.
func (m Membership) Invitation() *corev1.Secret { return m.secret(InvitationSecret) }

func (m Membership) secret(name string) *corev1.Secret {
	data := map[string][]byte{
		keyClusterID: []byte(m.ClusterID), keyClusterSet: []byte(m.ClusterSet), keyNamespace: []byte(m.Namespace),
		keyServer: []byte(m.Server), keyCA: m.CAData, keyToken: []byte(m.Token),
	}
	if m.UseClusterSetIP != nil {
		data[keyUseClusterSetIP] = strconv.AppendBool(nil, *m.UseClusterSetIP)
	}
	if m.DataPlane != "" {
		data[keyDataPlane] = []byte(m.DataPlane)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: AgentNamespace, Name: name, Labels: map[string]string{LabelPartOf: PartOfSeamark}},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

// ErrNotMember is wrapped by the error of MembershipFrom for a Secret that does not exist or that
// holds nothing yet: the chart creates the agent's Secret empty.
var ErrNotMember = errors.New("this cluster is not a member of a clusterset: run seamark join, or apply an invitation " +
	"(seamark broker invite ID -o yaml)")

// MembershipFrom reads a membership back from its Secret.
func MembershipFrom(secret *corev1.Secret) (Membership, error) {
	if secret == nil || (secret.Name == MembershipSecret && len(secret.Data) == 0) {
		return Membership{}, ErrNotMember
	}
	get := func(key string) string { return string(secret.Data[key]) }
	m := Membership{
		ClusterID: get(keyClusterID), ClusterSet: get(keyClusterSet), Namespace: get(keyNamespace),
		Server: get(keyServer), CAData: secret.Data[keyCA], Token: get(keyToken), DataPlane: v1alpha1.DataPlane(get(keyDataPlane)),
	}
	if text := get(keyUseClusterSetIP); text != "" {
		use, err := strconv.ParseBool(text)
		if err != nil {
			return m, fmt.Errorf("secret %s/%s: %s must be true or false, not %q", secret.Namespace, secret.Name, keyUseClusterSetIP, text)
		}
		m.UseClusterSetIP = &use
	}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return m, nil
}
