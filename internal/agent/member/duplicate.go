package member

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// How often a cluster marks the lease that a copy of it renews, and after how long without a new
// mark the copy takes the marking cluster for gone, in renewals of the lease: a minute and three.
const (
	markInterval = 12
	markExpiry   = 36
)

// duplicateMark is the mark that a stopped copy of this cluster leaves on the lease, as observed by
// the cluster that renews it.
type duplicateMark struct {
	value    string
	observed time.Time // when it was last written, as observed here
}

// observe returns the mark that the next renewal should have, empty for none.
func (m *duplicateMark) observe(value, ownNonce string, expiry time.Duration, now time.Time) string {
	if value != m.value {
		m.value, m.observed = value, now
	}
	if strings.HasPrefix(value, ownNonce+" ") || now.Sub(m.observed) > expiry {
		return "" // this cluster has taken over from its copy, or the copy is gone
	}
	return value
}

// markDuplicate marks the lease, so that the copy of this cluster that renews it sees that there
// are two.
func (h *Heartbeat) markDuplicate(ctx context.Context, lease *coordinationv1.Lease) {
	now := time.Now()
	if now.Sub(h.marked) < markInterval*h.renewEvery() && objects.IsMarkedBy(lease, h.claim.nonce) {
		return
	}
	marked := lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, v1alpha1.AnnotationDuplicate, h.claim.nonce+" "+now.UTC().Format(time.RFC3339))
	if err := h.Client.Patch(ctx, marked, client.MergeFrom(lease)); err != nil {
		h.Log.V(1).Info("cannot mark the lease that a copy of this cluster renews; retrying", "error", err.Error())
		return
	}
	h.marked = now
}

// keepMark leaves the mark of a copy of this cluster on the lease as long as the copy runs, and
// records whether there is one.
func (h *Heartbeat) keepMark(lease *coordinationv1.Lease) {
	mark := h.mark.observe(lease.Annotations[v1alpha1.AnnotationDuplicate], h.claim.nonce, markExpiry*h.renewEvery(), time.Now())
	if mark == "" {
		delete(lease.Annotations, v1alpha1.AnnotationDuplicate)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch has := mark != ""; {
	case has && !h.hasCopy:
		h.Log.Info("a copy of this cluster runs with the same id, as clusters restored from one backup do; it publishes nothing. "+
			"Run seamark leave there and join with another id", "mark", mark)
	case !has && h.hasCopy:
		h.Log.Info("the copy of this cluster is gone")
	}
	h.hasCopy = mark != ""
}

// HasCopy reports whether a copy of this cluster runs with the same id, be it stopped or be it the
// one that renews the lease.
func (h *Heartbeat) HasCopy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasCopy
}
