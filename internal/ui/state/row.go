package state

import (
	"cmp"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// Codes of findings that are shown once for the whole page and not with every service: the broker
// and clusters that do not answer have a verdict of their own.
const (
	codeBrokerUnreachable  = "broker-unreachable"
	codeClusterUnreachable = "cluster-unreachable"
)

// Columns are the clusters of the cells of rows.
type Columns struct {
	IDs   []string
	index map[string]int
}

// NewColumns returns the columns with these ids.
func NewColumns(ids []string) *Columns {
	c := &Columns{IDs: ids, index: make(map[string]int, len(ids))}
	for i, id := range ids {
		c.index[id] = i
	}
	return c
}

// Index returns the position of a cluster; ok is false if it has no column.
func (c *Columns) Index(id string) (i int, ok bool) {
	i, ok = c.index[id]
	return i, ok
}

// NewRow arranges what explain found about a service. before is the row of the previous snapshot
// with the same columns, nil if there is none: cells of clusters that do not answer keep what was
// last known of them.
func NewRow(in *explain.Input, report *explain.Report, columns *Columns, before *Row) *Row {
	b := &rowBuilder{columns: columns, before: before, cells: make([]Cell, len(columns.IDs)), sends: make([]byte, len(columns.IDs))}
	for i := range b.sends {
		b.sends[i] = sendsToNil
	}
	row := &Row{Name: in.Namespace + "/" + in.Name, Groups: groups(report.Findings)}
	for i := range report.Exporters {
		if at, ok := columns.Index(report.Exporters[i].Cluster); ok {
			row.Exporters = append(row.Exporters, at)
			b.cells[at].Exports = true
		}
	}
	b.addClusters(in, report, row.Exporters)
	b.addFindings(report.Findings)
	for i, cell := range b.cells {
		if cell.Verdict != Unknown {
			row.Verdict = worse(row.Verdict, cell.Verdict)
		}
		b.sends[i] = cmp.Or(b.sends[i], sendsToNil)
	}
	row.Verdict = worse(row.Verdict, b.whole)
	if row.Verdict == None {
		row.Verdict = Unknown
	}
	row.Cells, row.Sends = b.text(), string(b.sends)
	return row
}

type rowBuilder struct {
	columns *Columns
	before  *Row
	cells   []Cell
	sends   []byte
	// whole is the verdict of findings about the service as a whole.
	whole Verdict
}

// addClusters sets what each cluster has of the service.
func (b *rowBuilder) addClusters(in *explain.Input, report *explain.Report, exporters []int) {
	imports := map[string]bool{}
	for i := range report.Importers {
		imports[report.Importers[i].Cluster] = true
	}
	read := map[string]bool{}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		at, ok := b.columns.Index(c.ID)
		if !ok {
			continue
		}
		read[c.ID] = true
		if c.Problem != "" {
			b.keep(at, exporters)
			continue
		}
		cell := &b.cells[at]
		cell.Imports = imports[c.ID] && c.Import != nil
		if cell.Imports || cell.Exports {
			cell.Verdict = OK
		}
		b.sends[at] = sendChar(positions(b.columns, targets(c), exporters), len(exporters))
	}
	for _, at := range exporters {
		if read[b.columns.IDs[at]] {
			continue
		}
		b.cells[at].Verdict = OK // as the broker has it
	}
	if in.Broker.Problem == "" || b.before == nil {
		return
	}
	for at, id := range b.columns.IDs { // known from the broker only, which does not answer
		if !read[id] && b.before.Cell(at).Verdict != None {
			b.keep(at, exporters)
		}
	}
}

// keep makes a cell unknown, with what was last known of it.
func (b *rowBuilder) keep(at int, exporters []int) {
	cell := &b.cells[at]
	if b.before != nil {
		last := b.before.Cell(at)
		cell.Exports, cell.Imports = cell.Exports || last.Exports, last.Imports
		if slices.Equal(exporters, b.before.Exporters) {
			b.sends[at] = b.before.Sends[at]
		}
	}
	cell.Verdict = Unknown
}

// addFindings makes cells as bad as the findings about their clusters. A finding about the service
// as a whole counts for every cluster that takes part.
func (b *rowBuilder) addFindings(findings []explain.Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Code == codeBrokerUnreachable || f.Code == codeClusterUnreachable {
			continue
		}
		verdict := verdictOf(f.Severity)
		if f.Cluster == "" {
			b.whole = worse(b.whole, verdict)
			for at := range b.cells {
				if cell := &b.cells[at]; cell.Verdict != None && cell.Verdict != Unknown {
					cell.Verdict = worse(cell.Verdict, verdict)
				}
			}
			continue
		}
		for _, id := range f.Clusters() {
			at, ok := b.columns.Index(id)
			if !ok {
				b.whole = worse(b.whole, verdict)
				continue
			}
			if b.cells[at].Verdict == Unknown { // found elsewhere, such as on the broker
				b.whole = worse(b.whole, verdict)
				continue
			}
			b.cells[at].Verdict = worse(b.cells[at].Verdict, verdict)
		}
	}
}

func (b *rowBuilder) text() string {
	out := make([]byte, len(b.cells))
	for i, c := range b.cells {
		out[i] = c.Char()
	}
	return string(out)
}

// Moved returns the row with other columns. Clusters without a column are left out.
func (r *Row) Moved(from, to *Columns) *Row {
	moved := *r
	cells, sends := make([]byte, len(to.IDs)), make([]byte, len(to.IDs))
	for i, id := range to.IDs {
		cells[i], sends[i] = Cell{}.Char(), sendsToNil
		if at, ok := from.Index(id); ok && at < len(r.Cells) {
			cells[i], sends[i] = r.Cells[at], r.Sends[at]
		}
	}
	moved.Cells, moved.Sends, moved.Exporters = string(cells), string(sends), nil
	for _, at := range r.Exporters {
		i, ok := to.Index(from.IDs[at])
		if !ok {
			moved.Sends = strings.Repeat(string(rune(sendsToNil)), len(to.IDs)) // positions of exporters are others
			continue
		}
		moved.Exporters = append(moved.Exporters, i)
	}
	return &moved
}

// targets returns the clusters that a cluster sends to: those with ready endpoints in its imported
// slices, without the unreachable ones if others have some.
func targets(c *explain.Cluster) []string {
	var all, reached []string
	for i := range c.Imported {
		source := c.Imported[i].Labels[mcsv1beta1.LabelSourceCluster]
		ready := slices.ContainsFunc(c.Imported[i].Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
		if !ready || slices.Contains(all, source) {
			continue
		}
		all = append(all, source)
		if !slices.Contains(c.Unreachable, source) {
			reached = append(reached, source)
		}
	}
	if len(reached) > 0 {
		return reached
	}
	return all
}

// positions returns the positions of clusters in the exporters.
func positions(columns *Columns, clusters []string, exporters []int) []int {
	var out []int
	for _, id := range clusters {
		at, ok := columns.Index(id)
		if p := slices.Index(exporters, at); ok && p >= 0 {
			out = append(out, p)
		}
	}
	return out
}

// groups joins the findings of one kind and severity.
func groups(findings []explain.Finding) []Group {
	var out []Group
	for i := range findings {
		f := &findings[i]
		if f.Severity == explain.Note || f.Code == codeBrokerUnreachable || f.Code == codeClusterUnreachable {
			continue
		}
		at := slices.IndexFunc(out, func(g Group) bool { return g.Code == f.Code && g.Severity == f.Severity })
		if at < 0 {
			out = append(out, Group{
				Code: f.Code, Title: f.Title, Severity: f.Severity, Hop: f.Hop, Detail: f.Detail, Waiting: f.Waiting, Cure: f.Cure,
			})
			at = len(out) - 1
		}
		for _, id := range f.Clusters() {
			if !slices.Contains(out[at].Clusters, id) {
				out[at].Clusters = append(out[at].Clusters, id)
			}
		}
	}
	return out
}
