package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
)

// statusInterval is how often the status of this member's Cluster is compared with the actual
// state. Only a difference is written.
const statusInterval = time.Minute

// statusDelay lets changes of several beacons be published together.
const statusDelay = time.Second

// relistTime is how long it takes at most until what was listed again is in the caches. Mostly it
// takes listenTime: until then a service whose endpoints the broker has lost may not be noted as
// such, and must not be reconciled without need.
const (
	relistTime = 10 * time.Second
	listenTime = time.Second
)

// pollInterval is how often the connection to the broker and the liveness of members are checked.
const pollInterval = 200 * time.Millisecond

// requestResync never blocks: one pending request is enough.
func (a *agent) requestResync() {
	select {
	case a.resync <- struct{}{}:
	default:
	}
}

// pollConnectionAndLiveness resyncs all services when the connection to the broker changes, when
// the cluster id is taken by another cluster or free again, and when the settings change. It
// reconciles the services of a cluster when its lease expires or is renewed again.
func (a *agent) pollConnectionAndLiveness(ctx context.Context) error {
	ticker := time.NewTicker(a.PollEvery)
	defer ticker.Stop()
	judge := &livenessJudge{Liveness: a.state.Liveness, store: &member.VerdictStore{Client: a.localDirect}, log: a.Log.WithName("liveness")}
	for !judge.restore(ctx) || !a.restoreUnreachable(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	connected, taken := false, false
	var resyncs []time.Time
	var relist time.Time // when all objects are listed again, because dropped ones fit now
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
		var changed []string
		if a.state.Listed() {
			changed = judge.judge(ctx)
			if a.reachDecided() {
				a.state.SetJudged()
			}
			if listed := a.state.Cluster(); listed != nil && !slices.Equal(a.toDemote(listed.Status.Demoted), listed.Status.Demoted) {
				a.requestStatus()
			}
		}
		if nowConnected, nowTaken := a.connected(), a.heartbeat.ClusterIDTaken() != nil; nowConnected != connected || nowTaken != taken {
			connected, taken = nowConnected, nowTaken
			a.Log.Info("the connection to the broker changed", "clusterset", a.membership.ClusterSet, "connected", connected, "idTaken", taken)
			a.resyncAll(ctx)
		}
		if now := time.Now(); connected && relist.IsZero() && a.content.RelistDue(a.limitsOf, now) {
			relist = now.Add(a.staggerMembers("limits")) // all members see it at the same moment
		}
		if !relist.IsZero() && !time.Now().Before(relist) {
			relist = time.Time{}
			a.Log.Info("a member publishes no more than its limits again; listing all objects of the broker again")
			a.relistBroker()
		}
		if now := time.Now(); connected && a.relistEnded(now, &resyncs) {
			a.resyncAll(ctx)
		}
		for _, cluster := range changed {
			keys := a.recordedServices(ctx, client.MatchingLabels{mcsv1beta1.LabelSourceCluster: cluster})
			a.exportPush.Push(keys...)
			a.importPush.Push(keys...)
			a.aggregatePush.Push(keys...)
		}
		a.countFailovers()
		if len(changed) > 0 {
			a.importPush.Push(a.heldImports.Held()...) // the records of the cluster may be lost
		}
	}
}

// relistEnded reports whether all services are to be resynced because the broker's objects have
// been listed again: soon, and again when all of them must be in the caches.
func (a *agent) relistEnded(now time.Time, resyncs *[]time.Time) bool {
	if a.restored.Load() && a.restarted() {
		a.restored.Store(false)
		*resyncs = []time.Time{now.Add(listenTime), now.Add(relistTime)}
	}
	if len(*resyncs) == 0 || now.Before((*resyncs)[0]) {
		return false
	}
	*resyncs = (*resyncs)[1:]
	return true
}

// relistBroker lists all objects of a broker that was restored from a backup, and requests a resync
// of all services. An object that was deleted after the backup, and whose deletion the watch had
// not delivered yet, looks unchanged in the new list and triggers no reconcile.
func (a *agent) relistBroker() {
	a.state.ForgetNewestLease()
	a.restartWatches()
	a.restored.Store(true)
}

// reportStatus updates the status of this member's Cluster object.
func (a *agent) reportStatus(ctx context.Context) error {
	reported, keepsBeacons, failed := false, true, 0
	part, started := a.stagger("status", time.Second), false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reportDelay(reported, failed, part)):
		case <-a.statusChanged:
			if !sleep(ctx, statusDelay) {
				return nil
			}
		}
		if !a.state.Connected() {
			continue
		}
		if !started && !sleep(ctx, a.staggerMembers("first status")) {
			return nil
		}
		started = true
		current := a.state.Cluster().DeepCopy()
		want := a.desiredStatus(ctx, &current.Status, keepsBeacons)
		if equality.Semantic.DeepEqual(current.Status, want) {
			reported, failed = true, 0
			continue
		}
		current.Status = *want.DeepCopy()
		if err := a.brokerDirect.Status().Update(ctx, current); err != nil {
			a.Log.V(1).Info("cannot update the status of this member's Cluster; retrying", "error", err.Error())
			reported, failed = false, failed+1
			continue
		}
		reported, failed = true, 0
		if want.Beacons != nil && current.Status.Beacons == nil {
			a.Log.Info("the broker does not keep beacons: upgrade its CRDs (seamark broker deploy), then restart the agent")
			keepsBeacons = false // each further attempt would be a write that changes nothing
		}
	}
}

// desiredStatus returns what the status of this member's Cluster should be.
func (a *agent) desiredStatus(ctx context.Context, current *v1alpha1.ClusterStatus, keepsBeacons bool) v1alpha1.ClusterStatus {
	want := *current.DeepCopy()
	want.AgentVersion = version.String()
	want.DataPlane = a.membership.DataPlane
	want.PodCIDRs = cidrs(a.nodes.PodCIDRs(64))
	want.NodeCIDRs = cidrs(a.nodes.NodeCIDRs(256))
	want.Demoted = a.toDemote(current.Demoted)
	services := objects.ServiceCIDRs(ctx, a.localDirect)
	a.setServiceRanges(services)
	want.ServiceCIDRs = cidrs(services)
	if keepsBeacons {
		var err error
		if want.Beacons, err = a.ownBeacons(ctx, current.Beacons); err != nil {
			a.Log.Error(err, "cannot publish the beacons of this cluster; retrying", "interval", statusInterval)
		}
	}
	return want
}

// maxDemoted is how many clusters a Cluster may list as demoted.
const maxDemoted = 1024

// toDemote returns the clusters that this member lists as demoted, given those that it lists now.
func (a *agent) toDemote(listed []string) []string {
	demoted := a.state.Liveness.ToDemote(time.Now(), listed)
	return demoted[:min(len(demoted), maxDemoted)]
}

// sleep waits, and reports false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// leads reports whether this replica is the leader. Others do not renew the credential.
func (a *agent) leads() bool {
	select {
	case <-a.manager.Elected():
		return true
	default:
		return false
	}
}

func cidrs(in []string) []v1alpha1.CIDR {
	out := make([]v1alpha1.CIDR, len(in))
	for i, c := range in {
		out[i] = v1alpha1.CIDR(c)
	}
	return out
}

// cachesSynced is the readiness check of the agent: the caches of its own cluster have synced. An
// unreachable broker does not make it unready, since it keeps what it has imported and still
// reconciles its own cluster.
func (a *agent) cachesSynced(req *http.Request) error {
	ctx, cancel := context.WithTimeout(req.Context(), time.Second)
	defer cancel()
	if a.manager.GetCache().WaitForCacheSync(ctx) {
		return nil
	}
	errs := []error{errors.New("the caches of this cluster have not synced yet")}
	a.unreadable.Range(func(_, err any) bool {
		errs = append(errs, err.(error))
		return true
	})
	return errors.Join(errs...)
}

// watchFailed handles the error of a watch of this cluster. A kind that is not served, or that the
// agent may not read, must not look like one without objects: the agent waits until it can list it.
func (a *agent) watchFailed(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsNotFound(err) {
		a.reportKindLost()
	}
	if r.LastSyncResourceVersion() != "" || (!apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)) {
		return
	}
	if _, known := a.unreadable.Swap(r.TypeDescription(), err); !known {
		a.Log.Error(err, "cannot read objects of this cluster: the agent is not ready, and changes nothing that depends on them, before it can",
			"kind", r.TypeDescription())
	}
}
