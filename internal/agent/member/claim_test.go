package member

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// process is an agent process that looks at a lease. Its tests advance in steps of half an interval
// of five seconds, as often as a process that does not renew looks.
type process struct {
	*testing.T
	claim
	lease *coordinationv1.Lease
	now   time.Time
}

const step = 2500 * time.Millisecond

func newProcess(t *testing.T, holder, nonce string) *process {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](20), RenewTime: ptr.To(metav1.NewMicroTime(start)),
	}}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationNonce, nonce)
	return &process{t, claim{holder: "uid", renewEvery: 5 * time.Second}, lease, start}
}

// look observes the lease, n times. Before every second time another process renews it if renewing.
func (p *process) look(n int, renewing bool) {
	for i := range n {
		p.now = p.now.Add(step)
		if renewing && i%2 == 0 {
			p.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(p.now))
		}
		p.observe(p.lease, p.now)
		if p.nonce != "" {
			p.judge(p.lease, p.now)
		}
	}
}

func (p *process) want(verdict claimVerdict) {
	p.Helper()
	if got := p.judge(p.lease, p.now); got != verdict {
		p.Fatalf("%s after %s: verdict %d, want %d", p.nonce, p.now.Sub(p.leaderSince), got, verdict)
	}
}

func TestClaimOfAFreshLease(t *testing.T) {
	for name, lease := range map[string]*coordinationv1.Lease{
		"never renewed": {},
		"released": {Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("uid"), RenewTime: ptr.To(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](20),
		}},
	} {
		p := newProcess(t, "", "")
		p.lease = lease
		p.lead("me", p.now)
		p.observe(lease, p.now)
		t.Log(name)
		p.want(mayRenew)
	}
}

// The predecessor was killed: the next leader takes over after one and a half intervals.
func TestClaimAfterACrash(t *testing.T) {
	p := newProcess(t, "uid", "before")
	p.observe(p.lease, p.now)
	p.lead("me", p.now)
	p.want(undecided)
	p.look(2, false)
	p.want(undecided)
	p.look(1, false)
	p.want(mayRenew)
}

// A replica that renewed for the leader that was killed needs no further wait when it is elected.
func TestClaimAfterStandingIn(t *testing.T) {
	p := newProcess(t, "uid", "leader")
	p.look(6, true)
	if p.mayStandIn(p.lease, "leader", p.now) {
		t.Fatal("stands in for a leader that renews")
	}
	p.look(4, false)
	for _, test := range []struct {
		leader, holder string
		want           bool
	}{{"leader", "uid", true}, {"other", "uid", false}, {"", "uid", false}, {"leader", "other", false}} {
		p.lease.Spec.HolderIdentity = ptr.To(test.holder)
		if got := p.mayStandIn(p.lease, test.leader, p.now); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
	p.lease.Spec.HolderIdentity = ptr.To("uid")
	for range 3 {
		p.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(p.now))
		p.renewed(p.now, p.now)
		p.look(1, false)
		if p.overdue(p.now) {
			t.Fatal("renews more often than the leader")
		}
		p.look(1, false)
		if !p.overdue(p.now) {
			t.Fatal("renews less often than the leader")
		}
	}
	p.lead("me", p.now)
	p.want(mayRenew)
}

// A cluster with the same uid is alive: this one stops, also while the other one elects a new
// leader, and takes over when the lease has expired.
// A broker that is restored again and again shows earlier renewals by former leaders of this
// cluster. They are no twins.
func TestClaimOnARestoredBroker(t *testing.T) {
	p := newProcess(t, "uid", "before")
	p.look(4, true)
	p.lead("me", p.now)
	for range 4 {
		p.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(p.lease.Spec.RenewTime.Add(-time.Minute)))
		p.look(2, false)
		p.want(undecided)
	}
	p.look(3, false)
	p.want(mayRenew)
}

func TestClaimOfATwin(t *testing.T) {
	p := newProcess(t, "uid", "twin")
	p.look(8, true) // as a standby it cannot distinguish a twin from its own leader
	p.lead("me", p.now)
	p.want(undecided)
	p.look(2, true)
	p.want(undecided)
	p.look(4, true)
	p.want(takenByTwin)
	delete(p.lease.Annotations, v1alpha1.AnnotationNonce) // the twin's leader ends
	p.look(4, false)
	p.want(takenByTwin)
	p.lease.Annotations[v1alpha1.AnnotationNonce] = "next"
	p.look(4, true)
	p.want(takenByTwin)
	p.look(7, false)
	p.want(takenByTwin)
	p.look(2, false)
	p.want(mayRenew)
}

// Another replica renewed once more before it knew of the new leader: that is no twin.
func TestClaimAfterALateRenewal(t *testing.T) {
	p := newProcess(t, "uid", "before")
	p.look(4, true)
	p.lead("me", p.now)
	p.look(1, true)
	p.want(undecided)
	p.look(3, false)
	p.want(mayRenew)
}

func TestClaimOfAnotherCluster(t *testing.T) {
	p := newProcess(t, "other", "nonce")
	p.lead("me", p.now)
	p.look(40, true)
	p.want(takenByOther)
	p.look(7, false)
	p.want(takenByOther)
	p.look(3, false)
	p.want(mayRenew)
}

func TestDuplicateMark(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m duplicateMark
	for _, test := range []struct {
		after       time.Duration
		value, want string
	}{
		{0, "", ""},
		{time.Second, "copy 1", "copy 1"},
		{3 * time.Minute, "copy 1", "copy 1"},
		{time.Minute, "copy 2", "copy 2"},
		{4 * time.Minute, "copy 2", ""},
		{time.Second, "me 1", ""},
	} {
		now = now.Add(test.after)
		if got := m.observe(test.value, "me", 3*time.Minute, now); got != test.want {
			t.Errorf("%q: %q, want %q", test.value, got, test.want)
		}
	}
}
