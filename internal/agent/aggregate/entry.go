package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Exporters that join or leave at the same moment take turns. An API server applies patches of one
// object one by one and starts each over when another was faster: hundreds at once would cost it
// the square of their number.
const (
	// together is how many exporters add themselves at the same time.
	together = 3
	// perExporter is how long an exporter expects one before it to take.
	perExporter = 20 * time.Millisecond
	maxTurns    = time.Minute
	// stallTime is how long an exporter waits for those before it without seeing progress.
	stallTime = 5 * time.Second
	// conflictPause is how long an exporter waits at least after its entry could not be written. Until
	// then its cache has what others wrote.
	conflictPause = 250 * time.Millisecond
	// failurePause is the same after another error: the API server may be overloaded.
	failurePause = 5 * time.Second
)

// turns returns how long so many exporters are expected to take.
func turns(exporters int) time.Duration {
	return min(time.Duration(exporters)*perExporter, maxTurns)
}

// ahead returns how many others write their entries before a member does. Those that join take
// turns in the order of their ids, several at a time. Those that leave take turns from the end of
// the list: an entry is removed by its place, which moves when one before it is removed. Stale
// clusters write nothing.
func ahead(id string, listed, exporters []string, stale map[string]bool) (others int) {
	at := slices.Index(listed, id)
	if at < 0 {
		known := setOf(listed)
		for _, c := range exporters {
			if !known[c] && !stale[c] && c < id {
				others++
			}
		}
		return max(0, others+1-together)
	}
	stay := setOf(exporters)
	for _, c := range listed[at+1:] {
		if !stay[c] && !stale[c] {
			others++
		}
	}
	return others
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// entryPatch returns the JSON patch of an aggregate's status that removes a member from the listed
// exporters, or adds it if it is not listed. It returns nil if none is listed: JSON patches cannot
// add to a list that does not exist.
func entryPatch(id string, listed []string) []byte {
	if len(listed) == 0 {
		return nil
	}
	patch := []operation{{Op: "add", Path: "/status/clusters/-", Value: mcsv1beta1.ClusterStatus{Cluster: id}}}
	if at := slices.Index(listed, id); at >= 0 {
		place := fmt.Sprintf("/status/clusters/%d", at)
		patch = []operation{{Op: "test", Path: place + "/cluster", Value: id}, {Op: "remove", Path: place}}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return data
}

// isEntryConflict reports whether an entry was not written because the list changed since it was
// read: the whole list was written, the entry is in another place, or it is there already.
func isEntryConflict(err error) bool {
	if objects.IsWriteConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeFieldValueDuplicate
	})
}

// clusterList returns the status entries of clusters, with one cluster added or removed.
func clusterList(clusters []string, id string, present bool) []mcsv1beta1.ClusterStatus {
	names := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c == id && !present })
	if present && !slices.Contains(names, id) {
		names = append(names, id)
	}
	out := make([]mcsv1beta1.ClusterStatus, len(names))
	for i, name := range names {
		out[i] = mcsv1beta1.ClusterStatus{Cluster: name}
	}
	return out
}

func clusterNames(si *mcsv1beta1.ServiceImport) []string {
	if si == nil {
		return nil
	}
	names := make([]string, len(si.Status.Clusters))
	for i, c := range si.Status.Clusters {
		names[i] = c.Cluster
	}
	return names
}

// ContentDiffers reports whether more than the list of exporters differs.
func ContentDiffers(before, after *mcsv1beta1.ServiceImport) bool {
	return before.UID != after.UID || before.Generation != after.Generation || !apply.SameMetadata(before, after) ||
		after.DeletionTimestamp != nil
}

// Hooks leave out the events of an aggregate that only show that other exporters added or removed
// themselves. N exporters would otherwise be reconciled N times each. If at most one is left, a
// member may have to delete the aggregate.
func Hooks(clusterID string) trigger.Hooks[*mcsv1beta1.ServiceImport] {
	return trigger.Hooks[*mcsv1beta1.ServiceImport]{Matters: func(before, after *mcsv1beta1.ServiceImport) bool {
		return len(after.Status.Clusters) <= 1 || objects.ListsCluster(before, clusterID) != objects.ListsCluster(after, clusterID) ||
			ContentDiffers(before, after)
	}}
}
