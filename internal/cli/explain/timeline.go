package explain

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Step is one hop of a change, as far as API servers keep its time: in whole seconds, each by its own clock.
type Step struct {
	// Change is what was on its way: the export itself, or the last change of its endpoints.
	Change string `json:"change"`
	// Where is the cluster, or broker.
	Where string    `json:"where"`
	What  string    `json:"what"`
	At    time.Time `json:"at"`
	// Took is the time since the first step, in seconds; 0 for less than one.
	Took float64 `json:"tookSeconds"`
}

// Changes that are followed.
const (
	changeExport    = "export"
	changeEndpoints = "last endpoint change"
)

// aClockIsOff is from when a difference of clocks is more than the coarseness of the times they are read from.
const aClockIsOff = 2 * time.Second

// timeline follows the newest export, and the last change of endpoints, through the hops whose time is known.
func timeline(in *Input) []Step {
	var source *Cluster
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if c.Export != nil && (source == nil || source.Export.CreationTimestamp.Before(&c.Export.CreationTimestamp)) {
			source = c
		}
	}
	if source == nil {
		return []Step{}
	}
	return append(exportSteps(in, source), endpointSteps(in)...)
}

func exportSteps(in *Input, source *Cluster) []Step {
	steps := []Step{{Change: changeExport, Where: source.ID, What: "ServiceExport created", At: corrected(source.Export.CreationTimestamp.Time, source.ClockAhead.Duration)}}
	for i := range in.Broker.Records {
		if r := &in.Broker.Records[i]; string(r.Spec.ClusterID) == source.ID {
			steps = append(steps, Step{Change: changeExport, Where: "broker", What: "record published", At: corrected(r.CreationTimestamp.Time, in.Broker.ClockAhead.Duration)})
		}
	}
	if a := in.Broker.Aggregate; a != nil && !a.CreationTimestamp.Before(&source.Export.CreationTimestamp) {
		steps = append(steps, Step{Change: changeExport, Where: "broker", What: "aggregate written", At: corrected(a.CreationTimestamp.Time, in.Broker.ClockAhead.Duration)})
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		first := time.Time{}
		for j := range c.Imported {
			s := &c.Imported[j]
			if s.Labels[mcsv1beta1.LabelSourceCluster] == source.ID && (first.IsZero() || s.CreationTimestamp.Time.Before(first)) {
				first = s.CreationTimestamp.Time
			}
		}
		if !first.IsZero() {
			steps = append(steps, Step{Change: changeExport, Where: c.ID, What: "endpoints imported", At: corrected(first, c.ClockAhead.Duration)})
		}
	}
	return sinceFirst(steps)
}

// endpointSteps follow the slice that changed last.
func endpointSteps(in *Input) []Step {
	var from *Cluster
	var slice *discoveryv1.EndpointSlice
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if c.Export == nil {
			continue
		}
		for j := range c.Slices {
			if slice == nil || changedAt(slice).Before(changedAt(&c.Slices[j])) {
				from, slice = c, &c.Slices[j]
			}
		}
	}
	if slice == nil || changedAt(slice).IsZero() {
		return nil
	}
	steps := []Step{{Change: changeEndpoints, Where: from.ID, What: "slice " + slice.Name + " changed", At: corrected(changedAt(slice), from.ClockAhead.Duration)}}
	onBroker := objects.SliceName(in.service(), from.ID, slice.Name)
	for i := range in.Broker.Slices {
		if s := &in.Broker.Slices[i]; s.Name == onBroker && !changedAt(s).IsZero() {
			steps = append(steps, Step{Change: changeEndpoints, Where: "broker", What: "slice published", At: corrected(changedAt(s), in.Broker.ClockAhead.Duration)})
		}
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		for j := range c.Imported {
			if s := &c.Imported[j]; c.ID != from.ID && s.Name == objects.ImportedSliceName(in.Name, from.ID, onBroker) && !changedAt(s).IsZero() {
				steps = append(steps, Step{Change: changeEndpoints, Where: c.ID, What: "slice imported", At: corrected(changedAt(s), c.ClockAhead.Duration)})
			}
		}
	}
	return sinceFirst(steps)
}

// sinceFirst fills in how long each step took. A clock that is off by less than can be measured may make a step seem to come before its
// cause: then it took no time.
func sinceFirst(steps []Step) []Step {
	for i := range steps {
		steps[i].At = steps[i].At.UTC()
		steps[i].Took = max(0, steps[i].At.Sub(steps[0].At).Seconds())
	}
	return steps
}

func corrected(t time.Time, ahead time.Duration) time.Time {
	if ahead.Abs() < aClockIsOff {
		return t
	}
	return t.Add(-ahead.Truncate(time.Second))
}

func changedAt(s *discoveryv1.EndpointSlice) time.Time {
	if last := lastWrite(s.ManagedFields); !last.IsZero() {
		return last
	}
	return s.CreationTimestamp.Time
}

// lastWrite is when an object was last changed, by the clock of its API server.
func lastWrite(fields []metav1.ManagedFieldsEntry) time.Time {
	var last time.Time
	for _, f := range fields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
