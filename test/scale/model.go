package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/seamark-dev/seamark/test/scale/simulated"
)

const (
	// teamSize is how many clusters share a namespace, and exporters how many of them export its
	// services. What a member imports does not depend on how many other members there are.
	teamSize  = 5
	exporters = 2
	// workers is how many clusters are changed at a time.
	workers = 8
)

// model is what the clusterset should be: the members, and what each service has in each of them.
type model struct {
	members []*simulated.Member
	teams   []*team
	// used counts the addresses of pods that each member has used.
	used map[string]int
}

// team is a namespace that some clusters have.
type team struct {
	namespace string
	members   []*simulated.Member
	// services are the addresses of each service, by exporting cluster.
	services map[string]map[string][]string
}

// place adds a member to a team, and creates the team's namespace there.
func (m *model) place(ctx context.Context, member *simulated.Member) error {
	m.members = append(m.members, member)
	if len(m.teams) == 0 || len(m.teams[len(m.teams)-1].members) == teamSize {
		m.teams = append(m.teams, &team{namespace: teamName(len(m.teams)), services: map[string]map[string][]string{}})
	}
	t := m.teams[len(m.teams)-1]
	t.members = append(t.members, member)
	return member.CreateNamespace(ctx, t.namespace)
}

func teamName(number int) string { return fmt.Sprintf("team-%d", number) }

func (t *team) exporters() []*simulated.Member { return t.members[:min(exporters, len(t.members))] }

// newAddresses returns addresses of pods of a member that it has not used lately.
func (m *model) newAddresses(member *simulated.Member, n int) []string {
	const perMember = 4000
	var out []string
	for range n {
		out = append(out, member.PodIP(m.used[member.ID]%perMember))
		m.used[member.ID]++
	}
	return out
}

// export makes the exporters of a team export a new service with so many endpoints each.
func (m *model) export(ctx context.Context, t *team, name string, endpoints int) error {
	t.services[name] = map[string][]string{}
	for _, member := range t.exporters() {
		addresses := m.newAddresses(member, endpoints)
		t.services[name][member.ID] = addresses
		if err := member.Export(ctx, t.namespace, name, addresses...); err != nil {
			return err
		}
	}
	return nil
}

// servicesAtOnce is how many services are exported at the same time while a clusterset is built up.
const servicesAtOnce = 20

// populate exports the services with the numbers from first to end, spread over all teams.
func (m *model) populate(ctx context.Context, first, end int) error {
	for k := first; k < end; k++ {
		if err := m.export(ctx, m.teams[k%len(m.teams)], fmt.Sprintf("svc-%d", k), 1); err != nil {
			return err
		}
	}
	return nil
}

// change replaces the endpoints of a service in one exporting cluster.
func (m *model) change(ctx context.Context, t *team, service string, exporter *simulated.Member) error {
	addresses := m.newAddresses(exporter, len(t.services[service][exporter.ID]))
	if err := exporter.SetAddresses(ctx, t.namespace, service, addresses...); err != nil {
		return err
	}
	t.services[service][exporter.ID] = addresses
	return nil
}

// changeEach changes the first service of each team, so that its arrival shows that the watches of
// all members work.
func (m *model) changeEach(ctx context.Context) error {
	for _, t := range m.teams {
		names := slices.Sorted(maps.Keys(t.services))
		if len(names) == 0 {
			continue
		}
		if err := m.change(ctx, t, names[0], t.members[0]); err != nil {
			return err
		}
	}
	return nil
}

// expected returns what each cluster of a team should import. Endpoints of a cluster whose agent
// does not run are left out where another cluster serves.
func (t *team) expected() simulated.Imports {
	running := map[string]bool{}
	for _, m := range t.members {
		running[m.ID] = m.Running()
	}
	out := simulated.Imports{}
	for name, bySource := range t.services {
		alive := maps.Clone(bySource)
		maps.DeleteFunc(alive, func(source string, _ []string) bool { return !running[source] })
		if len(alive) == 0 {
			alive = bySource
		}
		out[name] = map[string][]string{}
		for source, addresses := range alive {
			out[name][source] = slices.Sorted(slices.Values(addresses))
		}
	}
	return out
}

// difference returns an error that names one service which is not as expected; nil if there is
// none.
func difference(have, want simulated.Imports) error {
	for name := range want {
		if !reflect.DeepEqual(have[name], want[name]) {
			return fmt.Errorf("service %s has %v, want %v", name, have[name], want[name])
		}
	}
	for name := range have {
		if want[name] == nil {
			return fmt.Errorf("service %s was left behind: %v", name, have[name])
		}
	}
	return nil
}
