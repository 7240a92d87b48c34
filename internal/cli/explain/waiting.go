package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Wait is what a reconciler of a cluster's agent waits for before it writes what the service needs.
type Wait struct {
	// Reconciler is export, import or aggregate.
	Reconciler string             `json:"reconciler"`
	Reason     objects.WaitReason `json:"reason"`
	// Text is the reason in words.
	Text string `json:"text"`
	// Since is on the reader's clock.
	Since time.Time `json:"since"`
}

// The reconcilers of an agent, as it names them.
const (
	exportReconciler    = "export"
	importReconciler    = "import"
	aggregateReconciler = "aggregate"
)

// waitTexts are the reasons to wait in words. "The agent" and "this cluster" refer to the cluster
// of the finding.
var waitTexts = map[objects.WaitReason]string{
	objects.WaitForCache:      "the agent's cache does not show its own last write yet",
	objects.WaitForBroker:     "the agent has not reached the broker since it started",
	objects.WaitForClusterID:  "another cluster uses this cluster's id",
	objects.WaitForBurst:      "the write is deferred until writes that clients wait for are done",
	objects.WaitForNamespace:  "the namespace does not exist in this cluster, or is being deleted",
	objects.WaitForPermission: "the broker's admin has not allowed services of this system namespace",
	objects.WaitForRecords:    "records disappeared while the watch was interrupted; their exporters are given time to publish them again",
	objects.WaitForEndpoints:  "the service is new, and its endpoints have not arrived yet",
	objects.WaitForDeletion:   "an object of the same name is being deleted",
	objects.WaitForOther:      "another member with precedence is expected to write the aggregate",
	objects.WaitForConflict:   "another client changed the object at the same time; the agent retries",
	objects.WaitForService:    "the Service was deleted a moment ago and may be replaced",
	objects.WaitForIntent:     "most services of a cluster are gone, and nothing shows that this is meant",
	objects.WaitForMigration:  "Submariner Lighthouse writes the ServiceImport until the move to Seamark is finished",
}

// addWaits adds to the last finding what the given reconcilers of a cluster's agent wait for. A
// cluster that could not be read has no agent to ask.
func (e *explainer) addWaits(c *Cluster, reconcilers ...string) {
	if c == nil {
		return
	}
	f := &e.report.Findings[len(e.report.Findings)-1]
	for _, w := range c.Waiting {
		if slices.Contains(reconcilers, w.Reconciler) {
			f.Waiting = append(f.Waiting, Wait{
				Reconciler: w.Reconciler, Reason: w.Reason, Text: cmp.Or(waitTexts[w.Reason], string(w.Reason)),
				Since: corrected(w.Since, c.ClockAhead.Duration).UTC(),
			})
		}
	}
}
