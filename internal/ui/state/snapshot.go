// Package state is what the page shows: one snapshot of a clusterset, the differences between
// snapshots, and the timeline that follows from them.
//
// It is pure. Packages explain, status and doctor find what is wrong with services and clusters;
// this package only arranges it.
package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
)

// Verdict sums up a cell, a service or a cluster. Its order is that of the page's legend, not of
// how bad it is: see worse.
type Verdict byte

// Verdicts.
const (
	// None: the cluster has no part in the service.
	None Verdict = iota
	// OK: nothing is wrong.
	OK
	// Warn: it works, but not as asked for, or not for long.
	Warn
	// Fail: it does not work.
	Fail
	// Unknown: the cluster or the broker does not answer.
	Unknown
)

// badness orders verdicts: what is known to be wrong comes before what is not known.
var badness = [...]int{None: 0, OK: 1, Unknown: 2, Warn: 3, Fail: 4}

// worse returns the worse of two verdicts.
func worse(a, b Verdict) Verdict {
	if badness[b] > badness[a] {
		return b
	}
	return a
}

// verdictOf returns the verdict of a finding. Notes are no trouble.
func verdictOf(s explain.Severity) Verdict {
	switch s {
	case explain.Fail:
		return Fail
	case explain.Warn:
		return Warn
	}
	return OK
}

// Snapshot is the state of a clusterset at one moment.
type Snapshot struct {
	// Seq counts the differences since the page was started.
	Seq        int64     `json:"seq"`
	At         time.Time `json:"at"`
	ClusterSet string    `json:"clusterSet"`
	Broker     Broker    `json:"broker"`
	// Clusters are sorted by id; cells of rows are in the same order.
	Clusters []Cluster `json:"clusters"`
	Paths    []Path    `json:"paths"`
	// Rows are the services, sorted by namespace and name.
	Rows []*Row `json:"rows"`
}

// Broker is how the broker is read.
type Broker struct {
	status.Broker
	// LastSeen is when it answered last, if it does not answer now.
	LastSeen *time.Time `json:"lastSeen,omitempty"`
}

// Cluster is a column of the matrix.
type Cluster struct {
	status.Member
	Verdict Verdict `json:"verdict"`
	// Read reports whether the page looks into it, and does not know it from the broker only.
	Read bool `json:"read"`
	// LastSeen is when it answered last, if it does not answer now.
	LastSeen *time.Time `json:"lastSeen,omitempty"`
	// Kubernetes is the version of its API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	Pool       *Pool  `json:"pool,omitempty"`
	// Checks are the checks of doctor that warn or fail.
	Checks []doctor.Result `json:"checks,omitempty"`
}

// Pool is the clusterset IPs of the blocks of a cluster.
type Pool struct {
	Used int `json:"used"`
	// Size is how many the blocks hold; very large ones count as MaxPool.
	Size int `json:"size"`
}

// Path is how one cluster reaches another.
type Path struct {
	status.Path
	// Why is the reason in words.
	Why string `json:"why"`
}

// Row is a service. Rows of different snapshots are the same pointer if nothing changed.
type Row struct {
	// Name is namespace/name.
	Name    string  `json:"n"`
	Verdict Verdict `json:"v"`
	// Cells has a character for each cluster: see Cell. Sends has one too: see Targets.
	Cells string `json:"c"`
	Sends string `json:"s"`
	// Exporters are the indexes of the exporting clusters, the oldest export first.
	Exporters []int   `json:"x,omitempty"`
	Groups    []Group `json:"f,omitempty"`
}

// Group is the findings of one kind of a service.
type Group struct {
	Code     string           `json:"code"`
	Title    string           `json:"title"`
	Severity explain.Severity `json:"severity"`
	Hop      explain.Hop      `json:"hop"`
	// Clusters are where it was found; empty when that is the service as a whole.
	Clusters []string `json:"clusters,omitempty"`
	// Detail, Waiting and Cure are those of the first of them.
	Detail  string         `json:"detail"`
	Waiting []explain.Wait `json:"waiting,omitempty"`
	Cure    string         `json:"cure"`
}

// Cell is the part of one cluster in one service.
type Cell struct {
	Verdict          Verdict
	Exports, Imports bool
}

// firstCell is the character of a cell without any part in the service.
const firstCell = 'A'

// Char returns the cell as one letter.
func (c Cell) Char() byte {
	n := byte(c.Verdict) << 2
	if c.Exports {
		n |= 2
	}
	if c.Imports {
		n |= 1
	}
	return firstCell + n
}

// CellOf reads a cell back from its letter. Other characters are cells without any part.
func CellOf(char byte) Cell {
	n := char - firstCell
	if n > byte(Unknown)<<2|3 {
		return Cell{}
	}
	return Cell{Verdict: Verdict(n >> 2), Exports: n&2 != 0, Imports: n&1 != 0}
}

// The characters of Sends: one of sendMasks is a bit mask of the first six exporters. sendsAll and
// sendsSome are for services with more exporters.
const (
	sendMasks  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	maxMasked  = 6
	sendsAll   = '*'
	sendsSome  = '~'
	sendsToNil = 'A'
)

// sendChar returns the character for the exporters that a cluster sends to, by their positions.
func sendChar(positions []int, exporters int) byte {
	switch {
	case len(positions) == 0:
		return sendsToNil
	case exporters <= maxMasked:
		mask := 0
		for _, p := range positions {
			mask |= 1 << p
		}
		return sendMasks[mask]
	case len(positions) == exporters:
		return sendsAll
	}
	return sendsSome
}

// Cell returns the cell of the cluster at an index.
func (r *Row) Cell(i int) Cell {
	if i < 0 || i >= len(r.Cells) {
		return Cell{}
	}
	return CellOf(r.Cells[i])
}

// Targets returns the positions in Exporters of the clusters that the cluster at an index sends to.
// exact is false if only some of more than six exporters are used: then the service itself has to
// be looked at.
func (r *Row) Targets(i int) (positions []int, exact bool) {
	if i < 0 || i >= len(r.Sends) {
		return nil, true
	}
	switch char := r.Sends[i]; char {
	case sendsSome:
		return nil, false
	case sendsAll:
		for p := range r.Exporters {
			positions = append(positions, p)
		}
	default:
		mask := strings.IndexByte(sendMasks, char)
		for p := range r.Exporters {
			if p < maxMasked && mask > 0 && mask&(1<<p) != 0 {
				positions = append(positions, p)
			}
		}
	}
	return positions, true
}

// Row returns the row of a service, nil if there is none.
func (s *Snapshot) Row(name string) *Row {
	i, found := slices.BinarySearchFunc(s.Rows, name, func(r *Row, name string) int { return cmp.Compare(r.Name, name) })
	if !found {
		return nil
	}
	return s.Rows[i]
}

// IDs returns the ids of the clusters, in the order of the cells.
func (s *Snapshot) IDs() []string {
	ids := make([]string, len(s.Clusters))
	for i := range s.Clusters {
		ids[i] = s.Clusters[i].ID
	}
	return ids
}
