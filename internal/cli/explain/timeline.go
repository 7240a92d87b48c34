package explain

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Step is one step of a change, with the time that an API server recorded: in whole seconds, and
// corrected by the difference between its clock and the reader's.
type Step struct {
	// Change is what is followed: the export itself, or the last change of its endpoints.
	Change string `json:"change"`
	// Where is a cluster's id, or "broker".
	Where string    `json:"where"`
	What  string    `json:"what"`
	At    time.Time `json:"at"`
	// Took is the time since the first step in seconds; 0 if it is less than one.
	Took float64 `json:"tookSeconds"`
}

// The changes that are followed.
const (
	changeExport    = "export"
	changeEndpoints = "last endpoint change"
)

// broker is the place of steps on the broker.
const broker = "broker"

// minClockSkew is the smallest difference between clocks that is more than the resolution of the
// times from which it is computed.
const minClockSkew = 2 * time.Second

// timeline returns the steps of the newest export and of the last change of endpoints, as far as
// their times are known.
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
	var steps []Step
	add := func(where, what string, at time.Time, ahead metav1.Duration) {
		steps = append(steps, Step{Change: changeExport, Where: where, What: what, At: corrected(at, ahead.Duration)})
	}
	add(source.ID, "ServiceExport created", source.Export.CreationTimestamp.Time, source.ClockAhead)
	for i := range in.Broker.Records {
		if r := &in.Broker.Records[i]; string(r.Spec.ClusterID) == source.ID {
			add(broker, "record published", r.CreationTimestamp.Time, in.Broker.ClockAhead)
		}
	}
	if a := in.Broker.Aggregate; a != nil && !a.CreationTimestamp.Before(&source.Export.CreationTimestamp) {
		add(broker, "aggregate written", a.CreationTimestamp.Time, in.Broker.ClockAhead)
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
			add(c.ID, "endpoints imported", first, c.ClockAhead)
		}
	}
	return sinceFirst(steps)
}

// endpointSteps returns the steps of the slice that changed last.
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
	var steps []Step
	add := func(where, what string, s *discoveryv1.EndpointSlice, ahead metav1.Duration) {
		steps = append(steps, Step{Change: changeEndpoints, Where: where, What: what, At: corrected(changedAt(s), ahead.Duration)})
	}
	add(from.ID, "slice "+slice.Name+" changed", slice, from.ClockAhead)
	onBroker := objects.SliceName(in.service(), from.ID, slice.Name)
	for i := range in.Broker.Slices {
		if s := &in.Broker.Slices[i]; s.Name == onBroker && !changedAt(s).IsZero() {
			add(broker, "slice published", s, in.Broker.ClockAhead)
		}
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		for j := range c.Imported {
			s := &c.Imported[j]
			if c.ID != from.ID && s.Name == objects.ImportedSliceName(in.Name, from.ID, onBroker) && !changedAt(s).IsZero() {
				add(c.ID, "slice imported", s, c.ClockAhead)
			}
		}
	}
	return sinceFirst(steps)
}

// sinceFirst sets the time since the first step. Clocks that differ by less than can be measured
// may put a step before its cause: it then took no time.
func sinceFirst(steps []Step) []Step {
	for i := range steps {
		steps[i].At = steps[i].At.UTC()
		steps[i].Took = max(0, steps[i].At.Sub(steps[0].At).Seconds())
	}
	return steps
}

// corrected returns a time by the reader's clock, from one by a clock that is ahead of it.
func corrected(t time.Time, ahead time.Duration) time.Time {
	if ahead.Abs() < minClockSkew {
		return t
	}
	return t.Add(-ahead.Truncate(time.Second))
}

// changedAt returns when a slice was last changed.
func changedAt(s *discoveryv1.EndpointSlice) time.Time {
	if last := lastWrite(s.ManagedFields); !last.IsZero() {
		return last
	}
	return s.CreationTimestamp.Time
}

// lastWrite returns when an object was last changed, by its API server's clock; zero if unknown.
func lastWrite(fields []metav1.ManagedFieldsEntry) time.Time {
	var last time.Time
	for _, f := range fields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
