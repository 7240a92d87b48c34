package fleet

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

// Limits of what workloads are asked. None depends on the number of viewers, but for the services
// that they look at.
const (
	askEvery = 2 * time.Second
	// viewedFor is how long a service is asked about after a viewer looked at it.
	viewedFor = 10 * time.Second
	maxViewed = 5
	// others is how many services are asked about beside those that are looked at, each time: those
	// with trouble and all others in turn.
	others = 4
	// maxClusters is how many clusters are asked about a service that is looked at, maxOthers about
	// another.
	maxClusters = 20
	maxOthers   = 4
	askTimeout  = 4 * time.Second
	// answerAge is how long an answer counts.
	answerAge = time.Minute
)

// answer is what the workloads of a cluster said about a service.
type answer struct {
	at              time.Time
	waiting         []objects.Waiting
	proxies         []programmed.Service
	proxiesNotAsked string
	dns             *explain.Answer
	// imported is the version of the import that was asked about: answers about an earlier one do not
	// count.
	imported string
}

func versionOfImport(c *explain.Cluster) string {
	if c.Import == nil {
		return ""
	}
	return c.Import.ResourceVersion
}

// addTo adds the answer to what was read. Answers about an earlier state are left out: what a proxy
// had programmed then says nothing about now.
func (a *answer) addTo(c *explain.Cluster) {
	if time.Since(a.at) > answerAge {
		return
	}
	c.Waiting, c.ProxiesNotAsked = a.waiting, a.proxiesNotAsked
	if a.imported == versionOfImport(c) {
		c.Proxies, c.DNS = a.proxies, a.dns
	}
}

func (a *answer) says(other answer) bool {
	a.at, other.at = time.Time{}, time.Time{}
	return reflect.DeepEqual(*a, other)
}

// askLoop asks workloads about services.
func (f *Fleet) askLoop(ctx context.Context) {
	turn := 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery):
		}
		f.mu.Lock()
		reader, snapshot := f.reader, f.now
		viewed := f.viewedServices()
		f.mu.Unlock()
		if reader == nil {
			continue
		}
		var asking sync.WaitGroup
		for _, key := range viewed {
			asking.Go(func() { f.ask(ctx, reader, key, maxClusters, true) })
		}
		for _, key := range f.nextOthers(snapshot, &turn) {
			if !slices.Contains(viewed, key) {
				asking.Go(func() { f.ask(ctx, reader, key, maxOthers, false) })
			}
		}
		asking.Wait()
	}
}

// viewedServices returns the services that were looked at most recently. The caller holds the lock.
func (f *Fleet) viewedServices() []types.NamespacedName {
	var out []types.NamespacedName
	for key, at := range f.viewed {
		if time.Since(at) > viewedFor {
			delete(f.viewed, key)
			continue
		}
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return f.viewed[b].Compare(f.viewed[a]) })
	return out[:min(len(out), maxViewed)]
}

// nextOthers returns services to ask about in turn: every second one has trouble, if any has.
func (f *Fleet) nextOthers(s *state.Snapshot, turn *int) []types.NamespacedName {
	var trouble []*state.Row
	for _, r := range s.Rows {
		if r.Verdict == state.Fail || r.Verdict == state.Warn {
			trouble = append(trouble, r)
		}
	}
	var out []types.NamespacedName
	for range min(others, len(s.Rows)) {
		*turn++
		from := s.Rows
		if *turn%2 == 0 && len(trouble) > 0 {
			from = trouble
		}
		if key := keyOf(from[*turn/2%len(from)].Name); !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// ask asks up to limit clusters about a service. Those with a finding come first.
func (f *Fleet) ask(ctx context.Context, reader *survey.ServiceReader, key types.NamespacedName, limit int, dns bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	in := f.input(ctx, reader, key)
	report := explain.Explain(in)
	urgent := map[string]bool{}
	for i := range report.Findings {
		for _, id := range report.Findings[i].Clusters() {
			urgent[id] = true
		}
	}
	byID := map[string]*survey.Cluster{}
	for _, c := range f.clusters() {
		byID[c.Name()] = c
	}
	slices.SortStableFunc(in.Clusters, func(a, b explain.Cluster) int { return rank(urgent[b.ID]) - rank(urgent[a.ID]) })
	var asking sync.WaitGroup
	for i := range in.Clusters[:min(limit, len(in.Clusters))] {
		read := &in.Clusters[i]
		c := byID[read.ID]
		if c == nil || read.Problem != "" || (read.Import == nil && read.Export == nil && !urgent[read.ID]) {
			continue
		}
		asking.Go(func() { f.askCluster(ctx, c, key, read, dns) })
	}
	asking.Wait()
}

func rank(urgent bool) int {
	if urgent {
		return 1
	}
	return 0
}

func (f *Fleet) askCluster(ctx context.Context, c *survey.Cluster, key types.NamespacedName, read *explain.Cluster, dns bool) {
	asked := *read
	asked.Waiting, asked.Proxies, asked.ProxiesNotAsked = nil, nil, ""
	if dns {
		asked.DNS = nil
		c.Ask(ctx, key, &asked, f.Servers)
	} else {
		c.AskState(ctx, key, &asked)
	}
	got := answer{
		at: time.Now(), waiting: asked.Waiting, proxies: asked.Proxies, proxiesNotAsked: asked.ProxiesNotAsked, dns: asked.DNS,
		imported: versionOfImport(read),
	}
	f.mu.Lock()
	if f.answers[key] == nil {
		f.answers[key] = map[string]answer{}
	}
	last, known := f.answers[key][read.ID]
	f.answers[key][read.ID] = got
	f.forgetAnswers()
	f.mu.Unlock()
	if !known || !last.says(got) {
		f.note(func(p *pending) { p.services[key] = true })
	}
}

// forgetAnswers drops answers that are too old, when there are many. The caller holds the lock.
func (f *Fleet) forgetAnswers() {
	const many = 500
	if len(f.answers) <= many {
		return
	}
	for key, clusters := range f.answers {
		for id, a := range clusters {
			if time.Since(a.at) > answerAge {
				delete(clusters, id)
			}
		}
		if len(clusters) == 0 {
			delete(f.answers, key)
		}
	}
}

// Times of the checks that are not made by watches. With many clusters they are made less often.
const (
	checkEvery     = 10 * time.Second
	checkPerMember = 200 * time.Millisecond
	checkTimeout   = 30 * time.Second
	reachEvery     = 2 * time.Second
	reachPerMember = 20 * time.Millisecond
)

// checkLoop has doctor examine the clusters.
func (f *Fleet) checkLoop(ctx context.Context) {
	every := max(checkEvery, time.Duration(len(f.links))*checkPerMember)
	for first := true; ctx.Err() == nil; first = false {
		if first {
			pause(ctx, firstCheck)
		} else {
			pause(ctx, every)
		}
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		facts := survey.ReadFacts(checking, f.clusters(), f.broker.broker(), survey.FactOptions{ObjectsOnly: true})
		cancel()
		f.mu.Lock()
		for i := range facts.Clusters {
			facts.Clusters[i].Reachability = f.reached[facts.Clusters[i].ID]
		}
		f.mu.Unlock()
		results := doctor.Examine(facts).Results
		f.mu.Lock()
		f.checks = results
		f.mu.Unlock()
		f.note(func(p *pending) { p.common = true })
	}
}

// reachLoop asks agents which clusters they reach.
func (f *Fleet) reachLoop(ctx context.Context) {
	every := max(reachEvery, time.Duration(len(f.links))*reachPerMember)
	for ctx.Err() == nil {
		var asking sync.WaitGroup
		for _, c := range f.clusters() {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, askTimeout)
				defer cancel()
				reached := c.AskReachability(ctx)
				f.mu.Lock()
				defer f.mu.Unlock()
				if reached != nil {
					f.reached[c.Name()] = reached
				} else {
					delete(f.reached, c.Name())
				}
			})
		}
		asking.Wait()
		f.note(func(p *pending) { p.common = true })
		pause(ctx, every)
	}
}
