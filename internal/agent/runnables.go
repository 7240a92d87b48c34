package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
)

// statusEvery is how often the member compares what it tells about itself with what is true. Only a difference is written.
const statusInterval = time.Minute

// attendEvery is how soon the attendant notices that the broker has been reached, or that a cluster fell silent.
const pollInterval = 200 * time.Millisecond

// askToLookAgain never blocks: one request that waits is as good as many.
func (a *agent) requestResync() {
	select {
	case a.resync <- struct{}{}:
	default:
	}
}

// attend looks at everything when the broker has been reached, when the id turns out to be another's or is free again, and
// when the settings change; and at the services of a cluster when it falls silent or is back.
func (a *agent) pollConnectionAndLiveness(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	connected, taken := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.resync:
			if connected {
				a.resyncAll(ctx)
			}
		case <-ticker.C:
		}
		if now, lost := a.state.Connected(), a.heartbeat.ClusterIDTaken() != nil; now != connected || lost != taken {
			connected, taken = now, lost
			a.Log.Info("the way to the broker changed", "clusterset", a.membership.ClusterSet, "connected", connected, "taken", taken)
			a.resyncAll(ctx)
		}
		for _, cluster := range a.state.Liveness.Update(time.Now()) {
			a.Log.Info("liveness of a cluster changed", "member", cluster, "stale", a.state.Liveness.Stale()[cluster])
			keys := a.recordedServices(ctx, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: cluster})
			a.importPush.Push(keys...)
			a.aggregatePush.Push(keys...)
		}
	}
}

// tellStatus keeps the status of this member's Cluster object true.
func (a *agent) reportStatus(ctx context.Context) error {
	told := false
	for {
		wait := statusInterval
		if !told {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if !a.state.Connected() {
			continue
		}
		current := a.state.Cluster().DeepCopy()
		want := *current.Status.DeepCopy()
		want.AgentVersion = version.String()
		want.DataPlane = a.membership.DataPlane
		want.PodCIDRs = cidrs(a.nodes.PodCIDRs(64))
		want.ServiceCIDRs = cidrs(objects.ServiceCIDRs(ctx, a.localDirect))
		if equality.Semantic.DeepEqual(current.Status, want) {
			told = true
			continue
		}
		current.Status = want
		if err := a.brokerDirect.Status().Update(ctx, current); err != nil {
			a.Log.V(1).Info("cannot tell this member's status; trying again", "error", err.Error())
			continue
		}
		told = true
	}
}

func cidrs(in []string) []v1alpha1.CIDR {
	out := make([]v1alpha1.CIDR, len(in))
	for i, c := range in {
		out[i] = v1alpha1.CIDR(c)
	}
	return out
}

// cachesSynced is the readiness of the agent: it has seen its own cluster. A broker that is away does not make it unready,
// since it keeps what it has and does its work at home.
func (a *agent) cachesSynced(req *http.Request) error {
	ctx, cancel := context.WithTimeout(req.Context(), time.Second)
	defer cancel()
	if !a.manager.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the objects of this cluster have not all been listed yet")
	}
	return nil
}
