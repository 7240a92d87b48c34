package agent

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// readMembership reads the membership of this cluster.
func (a *agent) readMembership(ctx context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	a.Local = rest.CopyConfig(a.Local)
	a.Local.QPS = -1 // the API server's priority and fairness limits the agent
	if a.BesideSubmariner {
		a.Local.Wrap(kinds.New(a.reportKindLost).Wrap)
	}
	a.Local.Wrap(member.NewTransport().Wrap)
	if a.localDirect, err = client.New(a.Local, client.Options{Scheme: scheme, Mapper: newMapper()}); err != nil {
		return fmt.Errorf("connect to this cluster: %w", err)
	}
	var secret *corev1.Secret
	if secret, a.stored, err = a.memberships().TakeUp(ctx); err != nil {
		return err
	}
	a.membership, a.storedIn = a.stored, secret.UID
	a.membership.DataPlane = cmp.Or(a.DataPlane, a.stored.DataPlane)
	a.membership.UseClusterSetIP = cmp.Or(a.UseClusterSetIP, a.stored.UseClusterSetIP)
	a.ReportClusterID(a.membership.ClusterID)
	return member.CheckSecret(secret, a.membership)
}

// held returns the membership with which this agent runs, if it is stored in the Secret with this
// UID.
func (a *agent) held(secret types.UID) *objects.Membership {
	if secret != a.storedIn {
		return nil
	}
	m := a.stored
	m.Token = a.credential.Token()
	return &m
}

func (a *agent) memberships() *member.Memberships {
	return &member.Memberships{Client: a.localDirect, Log: a.Log.WithName("membership"), Held: a.held}
}
