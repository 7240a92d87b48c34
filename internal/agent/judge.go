package agent

import (
	"context"
	"maps"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seamark-dev/seamark/internal/agent/member"
)

// saveRetryInterval is how often verdicts are saved again after that failed.
const saveRetryInterval = 5 * time.Second

// livenessJudge keeps the verdicts about members in a store, so that the next leader has them
// before it acts.
type livenessJudge struct {
	*member.Liveness
	store *member.VerdictStore
	log   logr.Logger

	saved   map[string]member.Verdict
	unsaved bool // the last save failed, so it is not known what is stored
	retryAt time.Time
}

// restore reads the verdicts of an earlier leader, and reports whether that is done. Verdicts that
// cannot be read are decided anew: their clusters count as alive until their leases expire here.
func (j *livenessJudge) restore(ctx context.Context) bool {
	verdicts, err := j.store.Load(ctx)
	if err != nil {
		j.log.Error(err, "cannot read which members were stale before this agent became active")
		if verdicts == nil && !apierrors.IsForbidden(err) {
			return false // this cluster's API server does not answer; without it nothing can be done anyway
		}
	}
	j.Adopt(verdicts)
	j.saved = verdicts
	return true
}

// judge decides which members are stale and which of them are demoted, and returns those for which
// that changed. A verdict is stored before it counts: what was dropped because of it must not come
// back after a restart. Where that fails for a while, other writes to this cluster do as well. An
// agent that may not store verdicts decides without.
func (j *livenessJudge) judge(ctx context.Context) (changed []string) {
	now := time.Now()
	verdicts, changed := j.Judge(now)
	if (j.unsaved || !maps.Equal(verdicts, j.saved)) && (len(changed) > 0 || now.After(j.retryAt)) {
		j.retryAt = now.Add(saveRetryInterval)
		err := j.store.Save(ctx, verdicts)
		if j.unsaved = err != nil; j.unsaved {
			j.log.Error(err, "cannot save which members are stale; retrying", "interval", saveRetryInterval)
			if !apierrors.IsForbidden(err) {
				changed = nil // decided again with the next try
			}
		}
		j.saved = verdicts
	}
	if len(changed) > 0 {
		j.Adopt(verdicts)
	}
	for _, cluster := range changed {
		_, stale := verdicts[cluster]
		j.log.Info("the liveness of a member changed", "member", cluster, "stale", stale)
	}
	reordered := j.JudgeDemoted(now)
	for _, cluster := range reordered {
		j.log.Info("the precedence of a member changed", "member", cluster, "demoted", j.Demoted()[cluster])
	}
	return append(changed, reordered...)
}
